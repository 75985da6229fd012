// This is <assert.h> for NVRTC, where assert is built in, and where NDEBUG must switch it off. It has no
// include guard, because the standard requires that each #include looks at NDEBUG again.
#ifdef NDEBUG
#undef assert
#define assert(condition) ((void)0)
#endif
