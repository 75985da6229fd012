// <assert.h> for NVRTC, where assert is built in; NDEBUG must silence it as everywhere. Read anew each time,
// as the standard wants.
#ifdef NDEBUG
#undef assert
#define assert(condition) ((void)0)
#endif
