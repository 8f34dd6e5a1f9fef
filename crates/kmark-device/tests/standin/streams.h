// Streams, graphs and events of the stand-in driver.
#pragma once
#include "driver.h"

#define FIND(variable, from, handle) \
    auto variable = driver.from.get(handle); \
    if (!variable) return INVALID_HANDLE
#define FIND_STREAM(variable, handle) \
    auto variable = find_stream(handle); \
    if (!variable) return INVALID_HANDLE
// What waits or asks breaks a capture.
#define NOT_CAPTURING(stream) \
    if (stream->capture) return stream->broken = true, CAPTURE_UNSUPPORTED

API(cuStreamCreate, Stream** stream, unsigned) {
    NEED_CONTEXT();
    *stream = new_stream();
    return SUCCESS;
}
API(cuStreamDestroy_v2, Stream* handle) {
    NEED_CONTEXT();
    if ((uintptr_t)handle <= 2) return INVALID_HANDLE;
    auto stream = driver.streams.remove(handle);
    if (!stream) return INVALID_HANDLE;
    Hold hold(stream->lock);
    stream->closed = true; // its thread ends when the queue is empty
    stream->changed.notify_all();
    return SUCCESS;
}
API(cuStreamSynchronize, Stream* handle) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    NOT_CAPTURING(stream);
    stream->wait();
    return driver.sick;
}
API(cuStreamQuery, Stream* handle) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    NOT_CAPTURING(stream);
    Hold hold(stream->lock);
    return driver.sick ? driver.sick.load() : stream->done == stream->given ? SUCCESS : NOT_READY;
}
API(cuStreamGetCtx, Stream* handle, void** ctx) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    *ctx = &context;
    return SUCCESS;
}
API(cuStreamBeginCapture_v2, Stream* handle, int) {
    NEED_CONTEXT();
    if ((uintptr_t)handle <= 2) return CAPTURE_UNSUPPORTED;
    FIND_STREAM(stream, handle);
    if (stream->capture) return INVALID_VALUE;
    stream->capture = std::make_shared<Graph>();
    stream->broken = false;
    return SUCCESS;
}
API(cuStreamEndCapture, Stream* handle, Graph** graph) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    *graph = nullptr;
    if (!stream->capture) return INVALID_VALUE;
    shared_ptr<Graph> captured = std::move(stream->capture);
    stream->capture = nullptr;
    if (stream->broken) return CAPTURE_INVALIDATED;
    *graph = driver.graphs.add(captured);
    return SUCCESS;
}
API(cuStreamIsCapturing, Stream* handle, int* status) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    *status = !stream->capture ? 0 : stream->broken ? 2 : 1;
    return SUCCESS;
}
API(cuGraphInstantiateWithFlags, GraphExec** exec, Graph* handle, unsigned long long) {
    NEED_CONTEXT();
    FIND(graph, graphs, handle);
    *exec = driver.execs.add(std::make_shared<GraphExec>(GraphExec{graph->nodes}));
    return SUCCESS;
}
API(cuGraphUpload, GraphExec* handle, Stream* stream_handle) {
    NEED_CONTEXT();
    FIND(exec, execs, handle);
    FIND_STREAM(stream, stream_handle);
    return SUCCESS;
}
API(cuGraphLaunch, GraphExec* handle, Stream* stream) {
    NEED_CONTEXT();
    FIND(exec, execs, handle);
    return submit(stream, [exec] {
        for (auto& node : exec->nodes)
            if (int code = run_in_order(node)) return code;
        return 0;
    });
}
API(cuGraphGetNodes, Graph* handle, void** nodes, size_t* count) {
    NEED_CONTEXT();
    FIND(graph, graphs, handle);
    for (size_t i = 0; nodes && i < std::min(*count, graph->nodes.size()); i++) nodes[i] = &graph->nodes[i];
    *count = graph->nodes.size();
    return SUCCESS;
}
API(cuGraphDestroy, Graph* handle) {
    NEED_CONTEXT();
    return driver.graphs.remove(handle) ? SUCCESS : INVALID_HANDLE;
}
API(cuGraphExecDestroy, GraphExec* handle) {
    NEED_CONTEXT();
    return driver.execs.remove(handle) ? SUCCESS : INVALID_HANDLE;
}

API(cuEventCreate, Event** event, unsigned flags) {
    NEED_CONTEXT();
    auto made = std::make_shared<Event>();
    made->timed = !(flags & 2); // 2: without timing
    *event = driver.events.add(made);
    return SUCCESS;
}
API(cuEventRecord, Event* handle, Stream* stream_handle) {
    NEED_CONTEXT();
    FIND(event, events, handle);
    FIND_STREAM(stream, stream_handle);
    if (stream->capture) return SUCCESS; // only orders the graph, which is in order anyway
    u64 turn;
    {
        Hold hold(event->lock);
        turn = ++event->given;
    }
    stream->put([event, turn] { // also in a sick context, so that nobody waits for ever
        Hold hold(event->lock);
        event->time = monotonic_ns();
        event->done = std::max(event->done, turn);
        event->changed.notify_all();
        return 0;
    }, event);
    return SUCCESS;
}
API(cuEventQuery, Event* handle) {
    NEED_CONTEXT();
    FIND(event, events, handle);
    Hold hold(event->lock);
    return driver.sick ? driver.sick.load() : event->done == event->given ? SUCCESS : NOT_READY;
}
API(cuEventSynchronize, Event* handle) {
    NEED_CONTEXT();
    FIND(event, events, handle);
    Hold hold(event->lock);
    u64 until = event->given;
    event->changed.wait(hold, [&] { return event->done >= until; });
    return driver.sick;
}
static int elapsed(float* ms, Event* from_handle, Event* to_handle) {
    FIND(from, events, from_handle);
    FIND(to, events, to_handle);
    u64 time[2];
    for (int i = 0; i < 2; i++) {
        Event& event = i == 0 ? *from : *to;
        Hold hold(event.lock);
        if (!event.timed || event.given == 0) return INVALID_HANDLE;
        if (event.done < event.given) return NOT_READY;
        time[i] = event.time;
    }
    *ms = (float)((double)(int64_t)(time[1] - time[0]) * 1e-6);
    return SUCCESS;
}
API(cuEventElapsedTime, float* ms, Event* from, Event* to) {
    NEED_CONTEXT();
    return elapsed(ms, from, to);
}
API(cuEventElapsedTime_v2, float* ms, Event* from, Event* to) {
    NEED_CONTEXT();
    return elapsed(ms, from, to);
}
API(cuEventDestroy_v2, Event* handle) {
    NEED_CONTEXT();
    return driver.events.remove(handle) ? SUCCESS : INVALID_HANDLE;
}
