// Streams, capture, graphs and events. Work runs immediately, in the caller's thread.
#include <chrono>

#include "tests/support/fake_driver/world.hpp"

namespace kiln::fake {

bool valid_stream(World& w, CUstream stream) { return !stream || w.streams.count(stream); }

CUresult enqueue(World& w, CUstream stream, std::shared_ptr<Launch> launch) {
  if (stream && stream->capturing) {
    if (stream->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    launch->captured = true;
    stream->captured.push_back(launch);
    w.launches.push_back(launch);
    return CUDA_SUCCESS;
  }
  run(w, launch);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* out, unsigned) {
  KILN_FAKE_ENTER(cuStreamCreate);
  if (const auto bad = context_state(w)) return bad;
  auto stream = std::make_unique<CUstream_st>();
  stream->context = current_context();
  *out = stream.get();
  w.streams.emplace(*out, std::move(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  KILN_FAKE_ENTER(cuStreamDestroy);
  return w.streams.erase(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream stream) {
  KILN_FAKE_ENTER(cuStreamSynchronize);
  if (!valid_stream(w, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!stream || !stream->capturing) return CUDA_SUCCESS;
  stream->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  KILN_FAKE_ENTER(cuThreadExchangeStreamCaptureMode);
  if (*mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, capture_mode());
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  KILN_FAKE_ENTER(cuStreamIsCapturing);
  if (!valid_stream(w, stream)) return CUDA_ERROR_INVALID_HANDLE;
  *status = !stream || !stream->capturing ? CU_STREAM_CAPTURE_STATUS_NONE : stream->invalidated ? 2 : 1;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, int mode) {
  KILN_FAKE_ENTER(cuStreamBeginCapture);
  if (!stream || !valid_stream(w, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capturing || mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  stream->capturing = true;
  stream->invalidated = false;
  stream->mode = mode;
  stream->captured.clear();
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  KILN_FAKE_ENTER(cuStreamEndCapture);
  if (!stream || !valid_stream(w, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!stream->capturing) return CUDA_ERROR_INVALID_VALUE;
  stream->capturing = false;
  *out = nullptr;
  if (stream->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto graph = std::make_unique<CUgraph_st>();
  graph->nodes = std::move(stream->captured);
  *out = graph.get();
  w.graphs.emplace(*out, std::move(graph));
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
  KILN_FAKE_ENTER(cuGraphInstantiateWithFlags);
  if (!w.graphs.count(graph)) return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_unique<CUgraphExec_st>();
  exec->nodes = graph->nodes;
  *out = exec.get();
  w.execs.emplace(*out, std::move(exec));
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  KILN_FAKE_ENTER(cuGraphLaunch);
  if (!w.execs.count(exec) || !valid_stream(w, stream)) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& node : exec->nodes) {
    auto again = std::make_shared<Launch>();
    again->kernel = node->kernel;
    again->config = node->config;
    again->config.stream = stream;
    std::copy(std::begin(node->cluster), std::end(node->cluster), again->cluster);
    again->cooperative = node->cooperative;
    again->programmatic = node->programmatic;
    again->arguments = node->arguments;  // owned by the node, which stays in `launches` until a reset
    again->sizes = node->sizes;
    run(w, again);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  KILN_FAKE_ENTER(cuGraphExecDestroy);
  return w.execs.erase(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphDestroy(CUgraph graph) {
  KILN_FAKE_ENTER(cuGraphDestroy);
  return w.graphs.erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventCreate(CUevent* out, unsigned) {
  KILN_FAKE_ENTER(cuEventCreate);
  if (const auto bad = context_state(w)) return bad;
  auto event = std::make_unique<CUevent_st>();
  *out = event.get();
  w.events.emplace(*out, std::move(event));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  KILN_FAKE_ENTER(cuEventDestroy);
  return w.events.erase(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  KILN_FAKE_ENTER(cuEventRecord);
  if (!w.events.count(event) || !valid_stream(w, stream)) return CUDA_ERROR_INVALID_HANDLE;
  event->recorded = true;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  event->at_ms = w.spent_us ? *w.spent_us / 1000 : std::chrono::duration<double, std::milli>(now).count();
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  KILN_FAKE_ENTER(cuEventSynchronize);
  return w.events.count(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  KILN_FAKE_ENTER(cuEventElapsedTime);
  if (!w.events.count(start) || !w.events.count(end) || !start->recorded || !end->recorded)
    return CUDA_ERROR_INVALID_HANDLE;
  *ms = static_cast<float>(end->at_ms - start->at_ms);
  return CUDA_SUCCESS;
}

}  // namespace kiln::fake
