"""The caches of other JIT compilers, kept in kiln's store.

kiln.caches.triton      a cache manager for Triton
kiln.caches.inductor    remote caches for torch.compile
kiln.caches.cuda_core   a program cache for cuda.core
"""
