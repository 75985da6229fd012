// Naive reference for delta_chunk_mma: that of delta_chunk.
#include "recurrent/delta_chunk.reference.cu"
