// What the stand-in driver holds: streams, events, modules and memory, and what every call of it needs.
#pragma once
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <set>
#include <thread>

#include "calls.h"
#include "ptx_steps.h"

using std::shared_ptr;
using std::string;
typedef uint32_t u32;
typedef uint64_t u64;
typedef std::unique_lock<std::mutex> Hold;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};
static const struct { int code; const char *name, *text; } ERRORS[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// ---- State ---------------------------------------------------------------------------------------------------------

struct Work {
    std::function<int()> run;
    bool overlaps = false; // a launch that may begin before the one before it has ended
    template <class F> Work(F run, bool overlaps = false) : run(std::move(run)), overlaps(overlaps) {}
};

// Of the stream whose thread this is: a launch that lets the next one begin early, and waits for what comes. If that overlaps, it
// begins first, and this one runs when it asks for its end: who does not ask sees nothing of it.
static thread_local std::function<int()> waiting_launch;
static int run_waiting_launch() {
    auto launch = std::move(waiting_launch);
    waiting_launch = nullptr;
    return launch ? launch() : 0;
}
static int run_in_order(const Work& work) {
    int code = work.overlaps ? 0 : run_waiting_launch();
    return code ? code : work.run();
}

struct Graph {
    std::vector<Work> nodes;
};
struct GraphExec {
    std::vector<Work> nodes;
};

struct Event {
    std::mutex lock;
    std::condition_variable changed;
    u64 given = 0, done = 0, time = 0;
    bool timed = true;
};

struct Stream {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Work> queue;
    u64 given = 0, taken = 0, done = 0; // works put into the queue, taken from it, finished
    bool closed = false, broken = false;
    shared_ptr<Graph> capture;
    shared_ptr<Event> last; // recorded behind all other work

    u64 put(Work work, shared_ptr<Event> event = nullptr) {
        Hold hold(lock);
        queue.push_back(std::move(work));
        last = event;
        changed.notify_all();
        return ++given;
    }
    void wait() {
        Hold hold(lock);
        u64 until = given;
        changed.wait(hold, [&] { return done >= until; });
        // On a busy machine threads are woken late. Nothing happened since, so the event may as well be now.
        if (last && done == given) {
            Hold hold_event(last->lock);
            last->time = monotonic_ns();
        }
    }
    void serve();
};

struct Module {
    string image;
    std::vector<void*> libraries; // the same again and again, for variables of its own
    Code code;
    const emu_Module* table() const { return code.copies[0]; }
    ~Module() {
        for (void* library : libraries) dlclose(library);
    }
};
struct Function {
    shared_ptr<Module> module; // stays loaded while a launch of it is queued
    const emu_Kernel* kernel;
    std::atomic<int> max_shared{48 << 10};
};

// Handles are addresses of objects; one that is not (any more) in the table is refused, not followed.
template <class T> class Handles {
public:
    T* add(shared_ptr<T> object) {
        Hold hold(lock);
        table[object.get()] = object;
        return object.get();
    }
    shared_ptr<T> get(T* handle) {
        Hold hold(lock);
        auto at = table.find(handle);
        return at == table.end() ? nullptr : at->second;
    }
    shared_ptr<T> remove(T* handle) {
        shared_ptr<T> object = get(handle);
        Hold hold(lock);
        table.erase(handle);
        return object;
    }
    std::vector<shared_ptr<T>> all() {
        Hold hold(lock);
        std::vector<shared_ptr<T>> list;
        for (auto& entry : table) list.push_back(entry.second);
        return list;
    }

private:
    std::mutex lock;
    std::map<T*, shared_ptr<T>> table;
};

struct Range {
    size_t bytes, mapped;
    char* map;
    bool host;
};

struct Driver {
    std::atomic<bool> ready{false};
    std::atomic<int> sick{0}, retained{0}, device{0};
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Module> modules;
    Handles<Function> functions;
    Handles<Graph> graphs;
    Handles<GraphExec> execs;
    Stream* default_stream = nullptr;
    std::mutex lock; // of all below
    std::map<u64, Range> ranges;
    size_t used = 0, limit = 2ull << 30;

    Driver() {
        if (const char* bytes = getenv("KMARK_STANDIN_MEMORY")) limit = strtoull(bytes, nullptr, 0);
    }
};
constexpr int SMS = 16;
static const bool HOPPER = getenv("KMARK_STANDIN_ARCH") && !strcmp(getenv("KMARK_STANDIN_ARCH"), "90");
// Never destroyed: the threads of the streams may outlive main.
static Driver& driver = *new Driver;
static char context; // only its address counts
static thread_local void* current = nullptr;

static void fall_sick(int code) {
    int healthy = 0;
    driver.sick.compare_exchange_strong(healthy, code);
}

void Stream::serve() {
    Hold hold(lock);
    for (;;) {
        changed.wait(hold, [&] { return closed || !queue.empty(); });
        if (queue.empty()) return;
        Work work = std::move(queue.front());
        queue.pop_front();
        hold.unlock();
        if (int code = run_in_order(work)) fall_sick(code);
        work.run = nullptr; // lets go of what it holds before anyone hears that it is done
        hold.lock();
        taken++;
        if (waiting_launch && queue.empty()) changed.wait_for(hold, std::chrono::milliseconds(2), [&] { return !queue.empty(); });
        if (waiting_launch && queue.empty()) {
            hold.unlock();
            if (int code = run_waiting_launch()) fall_sick(code);
            hold.lock();
        }
        if (waiting_launch) continue; // nothing is said to be done meanwhile
        done = taken;
        changed.notify_all();
    }
}

static Stream* new_stream() {
    auto stream = std::make_shared<Stream>();
    std::thread([stream] { stream->serve(); }).detach();
    return driver.streams.add(stream);
}

// 0 and the two special handles are one ordinary stream here.
static shared_ptr<Stream> find_stream(Stream* handle) {
    return driver.streams.get((uintptr_t)handle <= 2 ? driver.default_stream : handle);
}

static void wait_for_all() {
    for (auto& stream : driver.streams.all()) stream->wait();
}

// Puts work into the stream, or into the graph that is being captured there. Nothing runs in a sick context.
static int submit(Stream* handle, Work work, bool wait = false) {
    auto stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    bool overlaps = work.overlaps;
    Work checked([run = std::move(work.run)] { return driver.sick ? 0 : run(); }, overlaps);
    if (stream->capture) {
        stream->capture->nodes.push_back(std::move(checked));
        return SUCCESS;
    }
    stream->put(std::move(checked));
    if (wait) stream->wait();
    return wait ? driver.sick.load() : SUCCESS;
}

// Every exported function starts with one of these: the first needs nothing, the last a healthy current context.
static int devices() {
    static const char* set = getenv("KMARK_STANDIN_DEVICES");
    return set ? atoi(set) : 1;
}
static bool is_device(int device) { return device >= 0 && device < devices(); }
static bool is_lost(int device) {
    static const char* set = getenv("KMARK_STANDIN_LOST");
    if (!set || (strncmp(set, "all:", 4) && atoi(set) != device)) return false;
    const char* file = strchr(set, ':');
    return file && access(file + 1, F_OK) == 0;
}

#define NOTE(...) \
    if (int injected = Calls::note(__func__, string(__VA_ARGS__))) return injected
#define NEED_INIT(...) \
    NOTE(__VA_ARGS__); \
    if (!driver.ready) return NOT_INITIALIZED
#define NEED_CONTEXT(...) \
    NEED_INIT(__VA_ARGS__); \
    if (!current) return INVALID_CONTEXT; \
    if (is_lost(driver.device)) fall_sick(DEVICE_UNAVAILABLE); \
    if (int code = driver.sick) return code
