// Writes the work list of an attention launch from lengths in device memory, over a list that the host has written
// once. A captured graph can thus replay an attention launch with lengths that only the device knows.
#include "kiln/block_copy.cuh"
#include "kiln/fault.cuh"
#include "kiln/pdl.cuh"
#include "work_list/block.cuh"
#include "work_list/one_tile.cuh"
#include "work_list/writer.cuh"

namespace kiln {

template <int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    attn_work_list(i32* plan, const i32* kv_indptr, i32 requests, i32 workers, i32 page_size,
                   const i32* qo_indptr, const i32* kv_len, const i32* last_page_len, i32 blocks) {
  using Crew = work_list::Block<THREADS>;
  using Writer = work_list::Writer<Crew>;
  using OneTileWriter = work_list::OneTileWriter<Crew>;
  extern __shared__ __align__(16) u8 dynamic_shared[];
  struct Fixed {
    work_list::Common common;
    typename Crew::Shared scan;
  };
  __shared__ Fixed memory[1];
  // Without fresh(), each access would compute its address from a special register, which takes about as long as a load.
  Fixed& fixed = memory[fresh(0)];
  work_list::Common& common = fixed.common;
  const Crew crew{&fixed.scan};
  auto* const lengths = reinterpret_cast<AttentionRequest*>(dynamic_shared);
  auto* const places = reinterpret_cast<work_list::Place*>(lengths + requests);
  auto* const shares = reinterpret_cast<work_list::Share*>(places + requests + 1);
  const work_list::DeviceLengths given{requests, page_size, qo_indptr, kv_indptr, kv_len, last_page_len};
  Writer writer{{crew, common, lengths, places, shares, plan, given}};
  // The writers use the same memory, one after the other.
  OneTileWriter one_tile_writer{crew,
                                common,
                                lengths,
                                reinterpret_cast<work_list::OneTile*>(places),
                                reinterpret_cast<work_list::OneTileShare*>(shares),
                                plan,
                                given,
                                {},
                                {},
                                {}};
  pdl_launch_dependents();  // at once, because this kernel takes only a few SMs
  one_tile_writer.load(writer, workers);
  if (one_tile_writer()) return;
  const unsigned refusal = writer();
  // A list for no kernel: the next attention launch refuses it.
  if (refusal != FAULT_NONE && blockIdx.x + threadIdx.x == 0) {
    plan[0] = 0;
    report_fault(refusal);
  }
}

}  // namespace kiln
