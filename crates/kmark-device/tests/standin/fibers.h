// Runs the launches of a stream on the CPU: block after block, the threads of a block as fibers that are only left
// where they wait for each other. A thread that never waits costs no switch: the fiber that ran it runs the next one.
// A wait that can never end, a fault and a misuse end the launch with the code that a GPU would give. To make mistakes
// visible, shared memory is garbage at the start of a block, asynchronous copies leave garbage until they are
// waited for, and KMARK_STANDIN_ORDER=reverse runs the threads of a block from the last to the first.
#pragma once
#include "fiber.h"

struct Dim { unsigned x, y, z; };

class Runner {
public:
    // One launch from its first to its last block; 0 or the error. `params` stay where they are meanwhile.
    int launch(const emu_Module& module, const emu_Kernel& kernel, Dim grid, Dim block, unsigned shared,
               void** params) {
        waiting++;
        turn.lock();
        waiting--;
        now = this;
        view = module.view;
        *view = emu_View{nullptr, {0, 0, 0}, {block.x, block.y, block.z}, {grid.x, grid.y, grid.z}, &RUNTIME};
        run = kernel.run;
        args = params;
        count = block.x * block.y * block.z;
        for (unsigned i = 0; i < count; i++)
            threads[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y, i % 32};
        error = 0;
        guard_thread();
        sigjmp_buf jump;
        if (sigsetjmp(jump, 1) == 0) {
            fault_jump = &jump;
            emu_Dim& at = view->block;
            for (at.z = 0; at.z < grid.z; at.z++)
                for (at.y = 0; at.y < grid.y; at.y++)
                    for (at.x = 0; at.x < grid.x && error == 0; at.x++) run_block(module, shared);
        } else {
            error = ILLEGAL_ADDRESS;
        }
        fault_jump = nullptr;
        for (unsigned i = 0; i < count; i++) { // after an error some are still in the middle
            if (threads[i].fiber) idle.push_back(threads[i].fiber);
            threads[i].fiber = nullptr;
            threads[i].copies.clear();
            threads[i].groups.clear();
        }
        turn.unlock();
        return error;
    }

private:
    struct Copy { void* to; const void* from; bool valid; };
    struct Thread {
        emu_Thread index;
        Fiber* fiber = nullptr; // null before the first and after the last instruction
        emu_Op op;              // what it waits for in its warp, and with whom
        unsigned mask;
        std::vector<Copy> copies; // under way, and where each committed group of them ends
        std::vector<size_t> groups;
    };
    struct Warp {
        unsigned live, ready, arrived; // lanes not at their end, lanes that can go on, lanes that wait in a collective
        uint64_t word_in[32], word_out[32];
        const void* row_in[32];
        unsigned wide_in[32][10], wide_out[32][4];
    };

    Thread threads[1024];
    Warp warps[32];
    unsigned count = 0, live = 0, at_barrier = 0, current = 0, ready_warps = 0;
    int error = 0;
    emu_View* view = nullptr;
    void (*run)(void**) = nullptr;
    void** args = nullptr;
    Context main;
    bool reverse = getenv("KMARK_STANDIN_ORDER") && strcmp(getenv("KMARK_STANDIN_ORDER"), "reverse") == 0;

    // Only one launch runs at a time in the process, so that kernels may have globals: `now` is the one.
    static inline std::mutex turn;
    static inline std::atomic<int> waiting{0};
    static inline Runner* now = nullptr;
    static inline std::vector<Fiber*>& idle = *new std::vector<Fiber*>; // a stream may outlive main
    static const emu_Runtime RUNTIME;

    void run_block(const emu_Module& module, unsigned shared) {
        memset(module.dynamic_shared, GARBAGE, shared + EMU_SHARED_FENCE);
        char* dynamic = (char*)module.dynamic_shared;
        memset(module.bss, GARBAGE, (size_t)(dynamic - module.bss));
        dynamic += EMU_SHARED_MAX + EMU_SHARED_FENCE;
        memset(dynamic, GARBAGE, (size_t)(module.bss_end - dynamic));
        live = count;
        at_barrier = ready_warps = 0;
        for (unsigned first = 0, w = 0; first < count; first += 32, w++) {
            unsigned lanes = count - first;
            warps[w].live = warps[w].ready = lanes >= 32 ? ~0u : (1u << lanes) - 1;
            warps[w].arrived = 0;
            ready_warps |= 1u << w;
        }
        take(next());
        Context::swap(main, threads[current].fiber->context);
        for (unsigned i = 0; i < EMU_SHARED_FENCE && error == 0; i++)
            if (module.dynamic_shared[shared + i] != GARBAGE) error = ILLEGAL_ADDRESS;
    }

    // ---- Who runs next ----

    unsigned pick(unsigned bits) const { return reverse ? 31 - __builtin_clz(bits) : __builtin_ctz(bits); }

    void set_ready(unsigned w, unsigned lanes) {
        warps[w].ready |= lanes;
        if (warps[w].ready) ready_warps |= 1u << w;
    }

    // A thread that can go on, of the same warp if there is one (its data is near); -1 if all wait.
    int next() {
        if (ready_warps == 0) return -1;
        unsigned w = current / 32;
        if (!(ready_warps >> w & 1)) w = pick(ready_warps);
        unsigned lane = pick(warps[w].ready);
        warps[w].ready &= ~(1u << lane);
        if (warps[w].ready == 0) ready_warps &= ~(1u << w);
        return (int)(w * 32 + lane);
    }

    // Makes `thread` the current one, with a fiber of its own.
    void take(int thread) {
        current = (unsigned)thread;
        Thread& t = threads[current];
        view->thread = &t.index;
        if (t.fiber) return;
        if (idle.empty()) idle.push_back(new Fiber);
        t.fiber = idle.back();
        idle.pop_back();
        t.fiber->context.start(t.fiber->top, worker);
    }

    // The current thread waits: another one goes on.
    void park() {
        Fiber* mine = threads[current].fiber;
        int other = next();
        if (other < 0) give_up(LAUNCH_FAILED);
        take(other);
        Context::swap(mine->context, threads[current].fiber->context);
    }

    void give_up(int code) {
        error = code;
        Context::swap(threads[current].fiber->context, main);
        __builtin_unreachable();
    }

    static void worker() {
        for (;;) {
            now->run(now->args);
            now->finish();
        }
    }

    // The current thread is at its end. Returns if its fiber can run another one.
    void finish() {
        Thread& t = threads[current];
        unsigned w = current / 32;
        copy_wait(0);
        t.copies.clear();
        warps[w].live &= ~(1u << current % 32);
        live--;
        // Those who wait do not wait for this one any more.
        for (unsigned left = warps[w].arrived; left; left &= left - 1) {
            unsigned lane = __builtin_ctz(left);
            if (!(warps[w].arrived >> lane & 1)) continue;
            unsigned group = group_of(w, lane);
            if (group) complete(w, lane, group), set_ready(w, group);
        }
        if (at_barrier > 0 && at_barrier == live) open_barrier(), set_all_ready();
        int other = next();
        Fiber* mine = t.fiber;
        t.fiber = nullptr;
        if (other >= 0 && !threads[other].fiber) {
            threads[other].fiber = mine;
            take(other);
            return;
        }
        idle.push_back(mine);
        if (other < 0) {
            if (live > 0) error = LAUNCH_FAILED;
            Context::swap(mine->context, main);
        }
        take(other);
        Context::swap(mine->context, threads[current].fiber->context);
    }

    // ---- Barriers and collectives ----

    void open_barrier() { at_barrier = 0; }
    void set_all_ready() {
        for (unsigned w = 0; w * 32 < count; w++) set_ready(w, warps[w].live);
    }

    static void sync_block() {
        Runner& r = *now;
        if (++r.at_barrier < r.live) return r.park();
        r.open_barrier();
        r.set_all_ready();
        unsigned w = r.current / 32, self = 1u << r.current % 32; // this one just goes on
        r.warps[w].ready &= ~self;
        if (r.warps[w].ready == 0) r.ready_warps &= ~(1u << w);
    }

    // The lanes that `lane` waits with if all of them are there, otherwise 0.
    unsigned group_of(unsigned w, unsigned lane) {
        unsigned group = threads[w * 32 + lane].mask & warps[w].live;
        return (group & ~warps[w].arrived) == 0 ? group : 0;
    }

    // The current lane takes part in `op` with the lanes of `mask`; its data lies in the warp's `in`.
    void collect(emu_Op op, unsigned mask) {
        unsigned w = current / 32, lane = current % 32;
        if (!(mask >> lane & 1)) give_up(LAUNCH_FAILED);
        threads[current].op = op;
        threads[current].mask = mask;
        warps[w].arrived |= 1u << lane;
        unsigned group = group_of(w, lane);
        if (!group) return park();
        complete(w, lane, group);
        set_ready(w, group & ~(1u << lane));
    }

    // Everyone of `group` is there: what they do happens here, at one moment for all.
    void complete(unsigned w, unsigned lane, unsigned group) {
        Warp& warp = warps[w];
        const Thread* lanes = &threads[w * 32];
        emu_Op op = lanes[lane].op;
        uint64_t votes = 0;
        for (unsigned left = group; left; left &= left - 1) {
            unsigned i = __builtin_ctz(left);
            if (lanes[i].op != op || lanes[i].mask != lanes[lane].mask) give_up(LAUNCH_FAILED);
            warp.word_out[i] = warp.word_in[i];
            votes |= (warp.word_in[i] & 1) << i;
        }
        warp.arrived &= ~group;
        switch (op) {
        case EMU_SYNC: break;
        case EMU_SHUFFLE:
            for (unsigned i = 0; i < 32; i++) // what a missing lane gives is undefined
                if (!(warp.live >> i & 1)) memset(&warp.word_out[i], GARBAGE, 8);
            break;
        case EMU_BALLOT:
            for (unsigned i = 0; i < 32; i++)
                if (group >> i & 1) warp.word_out[i] = votes | (uint64_t)group << 32;
            break;
        case EMU_LDMATRIX:
        case EMU_LDMATRIX_TRANS: ldmatrix(warp, group, op == EMU_LDMATRIX_TRANS); break;
        case EMU_MMA_F16:
        case EMU_MMA_BF16: mma(warp, group, op == EMU_MMA_BF16); break;
        }
    }

    static const unsigned long long* exchange(emu_Op op, unsigned mask, unsigned long long word) {
        Warp& warp = now->warps[now->current / 32];
        warp.word_in[now->current % 32] = word;
        now->collect(op, mask);
        return (const unsigned long long*)warp.word_out;
    }

    // ---- Matrices ----

    static void ldmatrix4(emu_Op op, unsigned* r, const void* row) {
        Warp& warp = now->warps[now->current / 32];
        unsigned lane = now->current % 32;
        if ((uintptr_t)row % 16 != 0) now->give_up(MISALIGNED_ADDRESS);
        warp.row_in[lane] = row;
        now->collect(op, ~0u);
        memcpy(r, warp.wide_out[lane], 16);
    }

    void ldmatrix(Warp& warp, unsigned group, bool transposed) {
        if (group != ~0u) give_up(LAUNCH_FAILED);
        for (unsigned i = 0; i < 4; i++)
            for (unsigned lane = 0; lane < 32; lane++) {
                uint16_t* to = (uint16_t*)&warp.wide_out[lane][i];
                for (unsigned j = 0; j < 2; j++) {
                    unsigned row = lane / 4, col = lane % 4 * 2 + j;
                    to[j] = ((const uint16_t*)warp.row_in[8 * i + (transposed ? col : row)])[transposed ? row : col];
                }
            }
    }

    static float of_bits(uint32_t bits) {
        float v;
        memcpy(&v, &bits, 4);
        return v;
    }
    static float wide(uint32_t half, bool bf16) {
        if (bf16) return of_bits(half << 16);
        uint32_t sign = (half & 0x8000) << 16, e = half >> 10 & 31, m = half & 1023;
        if (e == 0) return sign ? -(float)m * 0x1p-24f : (float)m * 0x1p-24f;
        return of_bits(sign | (e == 31 ? 255 : e + 112) << 23 | m << 13);
    }

    static void mma16816(emu_Op op, float* d, const unsigned* a, unsigned b0, unsigned b1) {
        Warp& warp = now->warps[now->current / 32];
        unsigned lane = now->current % 32, *in = warp.wide_in[lane];
        memcpy(in, d, 16);
        memcpy(in + 4, a, 16);
        in[8] = b0;
        in[9] = b1;
        now->collect(op, ~0u);
        memcpy(d, warp.wide_out[lane], 16);
    }

    // The whole product at once, each sum in the order of k.
    void mma(Warp& warp, unsigned group, bool bf16) {
        if (group != ~0u) give_up(LAUNCH_FAILED);
        float a[16][16], b[16][8], d[16][8];
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned* in = warp.wide_in[lane];
            unsigned g = lane / 4, c = lane % 4 * 2;
            for (unsigned j = 0; j < 2; j++) {
                unsigned shift = 16 * j;
                a[g][c + j] = wide(in[4] >> shift & 0xffff, bf16);
                a[g + 8][c + j] = wide(in[5] >> shift & 0xffff, bf16);
                a[g][c + 8 + j] = wide(in[6] >> shift & 0xffff, bf16);
                a[g + 8][c + 8 + j] = wide(in[7] >> shift & 0xffff, bf16);
                b[c + j][g] = wide(in[8] >> shift & 0xffff, bf16);
                b[c + 8 + j][g] = wide(in[9] >> shift & 0xffff, bf16);
                d[g][c + j] = of_bits(in[j]);
                d[g + 8][c + j] = of_bits(in[2 + j]);
            }
        }
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < 16; k++)
                for (int j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned g = lane / 4, c = lane % 4 * 2;
            memcpy(&warp.wide_out[lane][0], &d[g][c], 8);
            memcpy(&warp.wide_out[lane][2], &d[g + 8][c], 8);
        }
    }

    // ---- Asynchronous copies ----

    // The GPU may write at any time from here to the wait: garbage now shows who still reads the old bytes or does not
    // wait for the new ones.
    static void copy_async(void* to, const void* from, bool valid) {
        if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0) now->give_up(MISALIGNED_ADDRESS);
        memset(to, GARBAGE, 16);
        now->threads[now->current].copies.push_back({to, from, valid});
    }
    static void copy_commit() {
        Thread& t = now->threads[now->current];
        t.groups.push_back(t.copies.size());
    }
    static void copy_wait(int left) {
        Thread& t = now->threads[now->current];
        if (t.groups.size() <= (size_t)left) return;
        size_t groups = t.groups.size() - (size_t)left, end = t.groups[groups - 1];
        for (size_t i = 0; i < end; i++) {
            const Copy& c = t.copies[i];
            if (c.valid) memcpy(c.to, c.from, 16);
            else memset(c.to, 0, 16);
        }
        t.copies.erase(t.copies.begin(), t.copies.begin() + (long)end);
        t.groups.erase(t.groups.begin(), t.groups.begin() + (long)groups);
        for (size_t& g : t.groups) g -= end;
    }

    // ---- Time and faults ----

    // A kernel that waits for something outside lets a launch of another stream in between. That one may run the same
    // module, so what the module knows of this launch is put back afterwards; shared memory is not.
    static void rest(unsigned ns) {
        if (ns > 0) {
            timespec t = {0, (long)(ns < 1000000 ? ns : 1000000)};
            nanosleep(&t, nullptr);
        }
        if (waiting == 0) {
            sched_yield();
            return;
        }
        Runner* me = now;
        emu_View mine = *me->view;
        turn.unlock();
        usleep(50);
        turn.lock();
        now = me;
        *me->view = mine;
    }

    static unsigned long long clock() { return monotonic_ns(); }
    static void fail(int code) { now->give_up(code); }

    static inline thread_local sigjmp_buf* fault_jump = nullptr;
    static inline struct sigaction before[64];

    static void on_fault(int signal, siginfo_t* info, void* context) {
        if (fault_jump) siglongjmp(*fault_jump, signal);
        struct sigaction& old = before[signal]; // not a kernel's: whoever was there first
        if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal, info, context);
        if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal);
        sigaction(signal, &old, nullptr);
    }

    // Faults of kernels are caught on a stack of their own, for a fiber's may be what is used up.
    static void guard_thread() {
        static std::once_flag once;
        std::call_once(once, [] {
            struct sigaction action = {};
            action.sa_sigaction = on_fault;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK;
            for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, &before[signal]);
        });
        thread_local std::unique_ptr<char[]> memory;
        if (memory) return;
        constexpr size_t SIZE = 64 << 10;
        memory.reset(new char[SIZE]);
        stack_t stack = {};
        stack.ss_sp = memory.get();
        stack.ss_size = SIZE;
        sigaltstack(&stack, nullptr);
    }
};

inline const emu_Runtime Runner::RUNTIME = {sync_block, exchange,    ldmatrix4, mma16816, copy_async,
                                            copy_commit, copy_wait, clock,     rest,     fail};
