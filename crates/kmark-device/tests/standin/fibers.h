// Runs the launches of a stream on the CPU: cluster after cluster of blocks, their threads as fibers that are only left
// where they wait for each other. A thread that never waits costs no switch: the fiber that ran it runs the next one.
// The next cluster begins when one has ended, or when all threads of those that run wait for somebody else.
// A wait that can never end, a fault and a misuse end the launch with the code that a GPU would give. To make mistakes
// visible, shared memory is garbage at the start of a block, asynchronous copies leave garbage until they are
// waited for, and KMARK_STANDIN_ORDER=reverse runs the threads of a block from the last to the first.
#pragma once
#include <fcntl.h>
#include <stdio.h>

#include <deque>

#include "blocks.h"
#include "faults.h"

class Runner {
public:
    // One launch from its first to its last block; 0 or the error. `params` stay where they are meanwhile.
    int launch(Code& all, size_t kernel, const Shape& as, void** params) {
        outer = runs_here;
        if (!outer) {
            waiting++;
            turn.lock();
            waiting--;
        }
        now = runs_here = this;
        first_copy = outer ? outer->first_copy + outer->blocks.size() : 0;
        sigjmp_buf* outer_jump = Faults::jump;
        code = &all;
        shape = as;
        args = params;
        count = shape.block.x * shape.block.y * shape.block.z;
        kernel_index = kernel;
        const Dim &g = shape.grid, &c = shape.cluster;
        next_cluster = error = 0;
        clusters = (u64)(g.x / c.x) * (g.y / c.y) * (g.z / c.z);
        Faults::guard_thread();
        sigjmp_buf jump;
        if (sigsetjmp(jump, 1) == 0) {
            Faults::jump = &jump;
            while (error == 0 && (choose() || find_work())) enter();
        } else {
            error = ILLEGAL_ADDRESS;
            say("a fault, as of an address that is none");
        }
        Faults::jump = outer_jump;
        late.clear();
        for (auto& block : blocks) { // after an error some are still in the middle
            if (block->cluster) clear(*block);
            block->cluster = nullptr;
        }
        in_clusters.clear();
        runs_here = outer;
        if (outer)
            now = outer;
        else
            turn.unlock();
        return error;
    }

    // The launch before this one, which runs when this one asks for its end (griddepcontrol.wait), or when this one has ended.
    std::function<int()> before;
    int end_before() {
        auto launch = std::move(before);
        before = nullptr;
        return launch ? launch() : 0;
    }

    // ---- For ptx_steps.h: the current thread, what it waits for ----

    Block& block() { return *at; }
    Thread& thread() { return at->threads[current]; }
    Warp& warp() { return at->warps[current / 32]; }
    unsigned lane() const { return current % 32; }
    unsigned index() const { return current; }
    const Shape& launched() const { return shape; }
    const emu_View& view() const { return *at->module->view; }
    static Runner& the() { return *now; }

    [[noreturn]] void give_up(int code, const char* why = nullptr) {
        if (why) say(why);
        error = code;
        Context::swap(thread().fiber->context, main);
        __builtin_unreachable();
    }

    void say(const char* what) {
        const emu_View& v = view();
        if (log >= 0)
            dprintf(log, "stand-in: block %u,%u,%u thread %u: %s\n", v.block.x, v.block.y, v.block.z, current, what);
    }

    // Others go on first; of those who only poll, all do before this one does again. `news`: something was done before.
    void poll(bool news) {
        progress |= news;
        unsigned w = current / 32;
        at->warps[w].polls |= 1u << lane();
        at->polling_warps |= 1u << w;
        leave();
    }
    template <class Done>
    void wait_until(Done done) {
        for (bool news = true; !done(); news = false) poll(news);
        progress = true;
    }
    // Of who reads the same again and again nobody can tell whether he waits for it.
    void poll_memory(u64 place, u64 value) {
        auto seen = thread().seen.insert({place, value});
        bool news = seen.second || seen.first->second != value;
        seen.first->second = value;
        poll(news);
    }

    void collect(emu_Op op, unsigned mask) {
        unsigned w = current / 32, lane = current % 32;
        if (!(mask >> lane & 1)) give_up(LAUNCH_FAILED, "a lane that is not in the mask");
        thread().op = op;
        thread().mask = mask;
        at->warps[w].arrived |= 1u << lane;
        unsigned group = group_of(w, lane);
        if (!group) return park();
        complete(w, lane, group);
        set_ready(*at, w, group & ~(1u << lane));
    }

    void sync_threads() {
        if (++at->at_barrier < at->live) return park();
        open_barrier(*at);
        skip_self();
    }
    // Barrier `id` of `all` threads. Who only arrives does not wait.
    bool sync_named(unsigned id, unsigned all, bool wait, bool yes) {
        Named& n = at->named[id];
        n.all &= yes;
        n.arrived++;
        if (wait) n.lanes[current / 32] |= 1u << lane();
        if (n.arrived < all) {
            if (wait) park();
            return n.result;
        }
        n.result = n.all;
        n.all = true;
        n.arrived = 0;
        for (unsigned w = 0; w * 32 < count; w++) set_ready(*at, w, n.lanes[w]), n.lanes[w] = 0;
        if (wait) skip_self();
        return n.result;
    }
    void cluster_arrive() {
        Cluster& c = *at->cluster;
        thread().cluster_phase = c.phase;
        c.arrived++;
        open_cluster(c);
    }
    void cluster_wait() {
        Cluster& c = *at->cluster;
        unsigned phase = thread().cluster_phase;
        wait_until([&] { return c.phase != phase; });
    }

    // What hardware does in its own time: at the latest, when all wait.
    void do_later(std::function<void()> work) { late.push_back(std::move(work)); }

    // ---- Shared memory ----

    // An address as instructions have it: bytes from `base`; of another block of the cluster, its rank and one in front.
    char* shared_at(u64 address, size_t bytes, Block** owner = nullptr) {
        Block* of = at;
        if (unsigned rank = (unsigned)(address >> 24 & 0xff)) {
            if (rank > at->cluster->count) give_up(ILLEGAL_ADDRESS, "the cluster has no such block");
            of = at->cluster->blocks[rank - 1];
            if (of->live == 0) give_up(ILLEGAL_ADDRESS, "that block of the cluster has ended");
        }
        char* p = of->base + (address & 0xffffff);
        if (p + bytes > of->end) give_up(ILLEGAL_ADDRESS, "no address in shared memory");
        if ((uintptr_t)p % bytes_aligned(bytes)) give_up(MISALIGNED_ADDRESS);
        if (owner) *owner = of;
        return p;
    }
    // An operand of a product. Rows that are the same ones again count as rows, as compute-sanitizer counts them.
    void read_by_product(u64 address, size_t bytes) {
        char* p = shared_at(address, 16);
        if (p >= at->dynamic && p < at->dynamic_end && p + bytes > at->dynamic_end)
            give_up(ILLEGAL_ADDRESS, "an operand of a product ends behind shared memory");
    }
    // Where a copy of Hopper's will write: garbage from now on. A thread may still wait there for what it asked for by ldmatrix, though
    // it has arrived at a barrier since, if no fence was between: nothing else here comes as late.
    char* overwritten(u64 address, size_t bytes) {
        Block* of;
        char* p = shared_at(address, bytes, &of);
        for (size_t i = (size_t)(p - of->base) / 16, end = i + bytes / 16; i < end; i++) {
            Asked& a = of->asked[i];
            if (a.by && a.by->fences == a.fences)
                give_up(LAUNCH_FAILED, "a copy overwrites what a thread has asked for by ldmatrix, and no fence between");
            a = Asked();
        }
        memset(p, GARBAGE, bytes);
        return p;
    }
    static size_t bytes_aligned(size_t bytes) { return bytes % 16 == 0 ? 16 : bytes & -bytes; }
    u64 in_block(u64 address, unsigned rank) const { return (address & 0xffffff) | (u64)(rank + 1) << 24; }

    static void copy_wait(int left) { now->wait_copies(left); }
    void wait_copies(int left) {
        Thread& t = thread();
        for (auto& copies : t.handed) land(*copies);
        t.handed.clear();
        size_t end = first_groups(t.groups, left);
        for (size_t i = 0; i < end; i++) land(t.copies[i]);
        t.copies.erase(t.copies.begin(), t.copies.begin() + (long)end);
    }
    std::shared_ptr<std::vector<Copy>> hand_over_copies() {
        Thread& t = thread();
        t.handed.push_back(std::make_shared<std::vector<Copy>>(std::move(t.copies)));
        t.copies.clear();
        t.groups.clear();
        return t.handed.back();
    }
    void fail_later(int code) { error = code; }
    void sleep(unsigned ns) { rest(ns); }
    // How many entries the groups have that must be done so that only `left` are not; these groups are forgotten.
    static size_t first_groups(std::vector<size_t>& groups, int left) {
        if (groups.size() <= (size_t)left) return 0;
        size_t done = groups.size() - (size_t)left, end = groups[done - 1];
        groups.erase(groups.begin(), groups.begin() + (long)done);
        for (size_t& g : groups) g -= end;
        return end;
    }
    static void land(const Copy& c) {
        memcpy(c.to, c.from, c.valid);
        memset((char*)c.to + c.valid, 0, c.bytes - c.valid);
    }
    static void land(std::vector<Copy>& copies) {
        for (const Copy& c : copies) land(c);
        copies.clear();
    }

private:
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::unique_ptr<Cluster>> in_clusters;
    std::deque<std::function<void()>> late;
    Runner* outer = nullptr; // the launch that waits for this one
    size_t first_copy = 0;   // of the module: those before are of that launch
    Block* at = nullptr;     // the current thread is thread `current` of this one
    unsigned count = 0, current = 0;
    u64 next_cluster = 0, clusters = 0;
    size_t kernel_index = 0;
    int error = 0;
    bool progress = false;
    Code* code = nullptr;
    Shape shape;
    void** args = nullptr;
    Context main;
    bool reverse = getenv("KMARK_STANDIN_ORDER") && strcmp(getenv("KMARK_STANDIN_ORDER"), "reverse") == 0;
    int log = getenv("KMARK_STANDIN_WHY")
        ? open(getenv("KMARK_STANDIN_WHY"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
        : -1;

    // Only one launch runs at a time in the process, so that kernels may have globals: `now` is the one.
    static inline std::mutex turn;
    static inline std::atomic<int> waiting{0};
    static inline Runner* now = nullptr;
    static inline thread_local Runner* runs_here = nullptr;
    static inline std::vector<Fiber*>& idle = *new std::vector<Fiber*>; // a stream may outlive main
    static const emu_Runtime RUNTIME;

    // ---- Blocks begin and end ----

    bool start_cluster() {
        const Dim &g = shape.grid, &c = shape.cluster;
        unsigned all = c.x * c.y * c.z;
        Block* mine[64];
        unsigned found = 0;
        for (size_t i = 0; found < all; i++) {
            if (i == blocks.size()) blocks.emplace_back(new Block);
            while (first_copy + i >= code->copies.size()) {
                const emu_Module* more = code->another ? code->another() : nullptr;
                if (!more) return false;
                code->copies.push_back(more);
            }
            if (!blocks[i]->cluster) mine[found++] = blocks[i].get(), blocks[i]->module = code->copies[first_copy + i];
        }
        in_clusters.emplace_back(new Cluster);
        Cluster* cluster = in_clusters.back().get();
        cluster->count = all;
        cluster->live = all * count;
        u64 i = next_cluster++;
        Dim first = {(unsigned)(i % (g.x / c.x)) * c.x, (unsigned)(i / (g.x / c.x) % (g.y / c.y)) * c.y,
                     (unsigned)(i / (g.x / c.x) / (g.y / c.y)) * c.z};
        for (unsigned r = 0; r < all; r++) {
            emu_Dim place = {first.x + r % c.x, first.y + r / c.x % c.y, first.z + r / c.x / c.y};
            cluster->blocks[r] = mine[r];
            mine[r]->rank = r;
            mine[r]->cluster = cluster;
            start(*mine[r], place);
        }
        return true;
    }

    void start(Block& b, emu_Dim place) {
        const Dim &block = shape.block, &grid = shape.grid;
        *b.module->view = emu_View{nullptr, place, {block.x, block.y, block.z}, {grid.x, grid.y, grid.z}, &RUNTIME};
        b.run = b.module->kernels[kernel_index].run;
        // Where the driver finds the variables without a value, which are shared memory: garbage, as far as it may be used.
        const emu_Module& m = *b.module;
        char* dynamic = (char*)m.dynamic_shared;
        memset(dynamic, GARBAGE, shape.shared + EMU_SHARED_FENCE);
        memset(m.bss, GARBAGE, (size_t)(dynamic - m.bss));
        b.dynamic = dynamic, b.dynamic_end = dynamic + shape.shared;
        dynamic += EMU_SHARED_MAX + EMU_SHARED_FENCE;
        memset(dynamic, GARBAGE, (size_t)(m.bss_end - dynamic));
        b.base = (char*)((uintptr_t)m.bss & ~(uintptr_t)1023);
        b.end = m.bss_end;
        b.asked.assign((size_t)(b.end - b.base) / 16 + 1, Asked());
        b.live = count;
        b.at_barrier = b.ready_warps = b.polling_warps = 0;
        for (Named& n : b.named) n = Named();
        for (unsigned i = 0; i < count; i++)
            b.threads[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y, i % 32};
        for (unsigned first = 0, w = 0; first < count; first += 32, w++) {
            unsigned lanes = count - first;
            b.warps[w].live = b.warps[w].ready = lanes >= 32 ? ~0u : (1u << lanes) - 1;
            b.warps[w].arrived = b.warps[w].polls = 0;
            b.ready_warps |= 1u << w;
        }
        at = &b;
        current = 0;
    }

    // The last thread of the current block is at its end.
    void end_block() {
        const unsigned char* behind = at->module->dynamic_shared + shape.shared;
        for (unsigned i = 0; i < EMU_SHARED_FENCE && error == 0; i++)
            if (behind[i] != GARBAGE) error = ILLEGAL_ADDRESS;
        if (error) say("shared memory behind its end was written");
        Cluster* c = at->cluster;
        for (unsigned r = 0; r < c->count; r++)
            if (c->blocks[r]->live > 0) return;
        for (unsigned r = 0; r < c->count; r++) c->blocks[r]->cluster = nullptr;
        for (size_t i = 0; i < in_clusters.size(); i++)
            if (in_clusters[i].get() == c) return (void)in_clusters.erase(in_clusters.begin() + (long)i);
    }

    static void clear(Block& b) {
        for (Thread& t : b.threads) {
            if (t.fiber) idle.push_back(t.fiber);
            t.fiber = nullptr;
            forget(t);
        }
    }
    static void forget(Thread& t) {
        t.copies.clear(), t.groups.clear(), t.handed.clear();
        t.stores.clear(), t.store_groups.clear();
        t.products.clear(), t.product_groups.clear();
        t.seen.clear();
    }

    // ---- Who runs next ----

    unsigned pick(unsigned bits) const { return reverse ? 31 - __builtin_clz(bits) : __builtin_ctz(bits); }

    static void set_ready(Block& b, unsigned w, unsigned lanes) {
        b.warps[w].ready |= lanes;
        if (b.warps[w].ready) b.ready_warps |= 1u << w;
    }
    // What made all ready goes on by itself.
    void skip_self() {
        unsigned w = current / 32;
        at->warps[w].ready &= ~(1u << current % 32);
        if (at->warps[w].ready == 0) at->ready_warps &= ~(1u << w);
    }

    // Makes a thread that can go on the current one, of the same warp if there is one (its data is near).
    bool choose() {
        if (!at || !at->cluster || at->ready_warps == 0) {
            Block* other = nullptr;
            for (auto& b : blocks)
                if (b->cluster && b->ready_warps && (!other || !reverse)) {
                    other = b.get();
                    if (!reverse) break;
                }
            if (!other) return false;
            at = other;
        }
        unsigned w = current / 32;
        if (!(at->ready_warps >> w & 1)) w = pick(at->ready_warps);
        unsigned lane = pick(at->warps[w].ready);
        at->warps[w].ready &= ~(1u << lane);
        if (at->warps[w].ready == 0) at->ready_warps &= ~(1u << w);
        current = w * 32 + lane;
        return true;
    }

    // Nobody is ready. Those who poll look again; if that was in vain, hardware gets on with its work, or the next cluster
    // begins, or the host and other streams have a turn.
    bool find_work() {
        for (;;) {
            if (in_clusters.empty() && next_cluster == clusters) return false;
            bool polls = false;
            for (auto& b : blocks) polls |= b->cluster && b->polling_warps;
            if (in_clusters.empty()) {
                start_cluster();
            } else if (!polls) {
                error = LAUNCH_FAILED;
                say("threads wait for others that have ended or wait elsewhere");
                return false;
            } else if (!progress) {
                if (!late.empty()) {
                    std::deque<std::function<void()>> all;
                    all.swap(late);
                    for (auto& work : all) work();
                    if (error) return false;
                } else if (next_cluster == clusters ||
                           (in_clusters.size() + 1) * shape.cluster.x * shape.cluster.y * shape.cluster.z > shape.resident ||
                           !start_cluster()) {
                    rest(50000);
                }
            }
            progress = false;
            for (auto& b : blocks) {
                if (!b->cluster) continue;
                for (unsigned left = b->polling_warps; left; left &= left - 1) {
                    unsigned w = (unsigned)__builtin_ctz(left);
                    set_ready(*b, w, b->warps[w].polls);
                    b->warps[w].polls = 0;
                }
                b->polling_warps = 0;
            }
            if (choose()) return true;
            if (error) return false;
        }
    }

    // The current thread gets a fiber, if it has none.
    void take() {
        Thread& t = thread();
        at->module->view->thread = &t.index;
        if (t.fiber) return;
        if (idle.empty()) idle.push_back(new Fiber);
        t.fiber = idle.back();
        idle.pop_back();
        t.fiber->context.start(t.fiber->top, worker);
    }
    void enter() {
        take();
        Context::swap(main, thread().fiber->context);
    }

    // The current thread waits: another one goes on.
    void park() {
        progress = true;
        leave();
    }
    void leave() {
        Fiber* mine = thread().fiber;
        if (!choose()) return Context::swap(mine->context, main);
        take();
        if (thread().fiber != mine) Context::swap(mine->context, thread().fiber->context);
    }

    static void worker() {
        for (;;) {
            now->at->run(now->args);
            now->finish();
        }
    }

    // The current thread is at its end. Returns if its fiber can run another one.
    void finish() {
        Thread& t = thread();
        Block& b = *at;
        unsigned w = current / 32;
        copy_wait(0);
        if (!t.stores.empty()) give_up(LAUNCH_FAILED, "a thread ends while copies read what it has in shared memory");
        forget(t);
        b.warps[w].live &= ~(1u << current % 32);
        b.live--;
        progress = true;
        b.cluster->live--;
        open_cluster(*b.cluster);
        // Those who wait do not wait for this one any more.
        for (unsigned left = b.warps[w].arrived; left; left &= left - 1) {
            unsigned lane = __builtin_ctz(left);
            if (!(b.warps[w].arrived >> lane & 1)) continue;
            unsigned group = group_of(w, lane);
            if (group) complete(w, lane, group), set_ready(b, w, group);
        }
        if (b.at_barrier > 0 && b.at_barrier == b.live) open_barrier(b);
        Fiber* mine = t.fiber;
        t.fiber = nullptr;
        if (b.live == 0) end_block();
        bool other = error == 0 && choose();
        if (other && !thread().fiber) {
            thread().fiber = mine;
            return take();
        }
        idle.push_back(mine);
        if (!other) Context::swap(mine->context, main);
        take();
        Context::swap(mine->context, thread().fiber->context);
    }

    // ---- Barriers and collectives ----

    void open_barrier(Block& b) {
        b.at_barrier = 0;
        for (unsigned w = 0; w * 32 < count; w++) set_ready(b, w, b.warps[w].live);
    }
    void open_cluster(Cluster& c) {
        if (c.arrived == 0 || c.arrived < c.live) return;
        c.arrived = 0;
        c.phase++;
    }

    static void sync_block() { now->sync_threads(); }
    // The lanes that `lane` waits with if all of them are there, otherwise 0.
    unsigned group_of(unsigned w, unsigned lane) {
        unsigned group = at->threads[w * 32 + lane].mask & at->warps[w].live;
        return (group & ~at->warps[w].arrived) == 0 ? group : 0;
    }

    // Everyone of `group` is there: what they do happens here, at one moment for all.
    void complete(unsigned w, unsigned lane, unsigned group) {
        const Thread* lanes = &at->threads[w * 32];
        for (unsigned left = group; left; left &= left - 1) {
            unsigned i = __builtin_ctz(left);
            if (lanes[i].op != lanes[lane].op || lanes[i].mask != lanes[lane].mask)
                give_up(LAUNCH_FAILED, "lanes meet at different places");
        }
        at->warps[w].arrived &= ~group;
        if (!at->warps[w].together(lanes[lane].op, group))
            give_up(LAUNCH_FAILED, "a part of a warp where all of it is needed");
    }

    static const unsigned long long* exchange(emu_Op op, unsigned mask, unsigned long long word) {
        Warp& warp = now->warp();
        warp.word_in[now->lane()] = word;
        now->collect(op, mask);
        return (const unsigned long long*)warp.word_out;
    }

    // ---- Matrices ----

public:
    static void ldmatrix4(emu_Op op, unsigned* r, const void* row) {
        Warp& warp = now->warp();
        unsigned lane = now->lane();
        if ((uintptr_t)row % 16 != 0) now->give_up(MISALIGNED_ADDRESS);
        warp.row_in[lane] = (void*)row;
        Block& block = *now->at;
        if (row >= block.base && row < block.end)
            block.asked[(size_t)((const char*)row - block.base) / 16] = {&now->thread(), now->thread().fences};
        now->collect(op, ~0u);
        memcpy(r, warp.wide_out[lane], 16);
    }
    void stmatrix4(emu_Op op, const unsigned* r, void* row) {
        warp().row_in[lane()] = row;
        memcpy(warp().wide_in[lane()], r, 16);
        collect(op, ~0u);
    }
    static void mma16816(emu_Op op, float* d, const unsigned* a, unsigned b0, unsigned b1) {
        Warp& warp = now->warp();
        unsigned lane = now->lane(), *in = warp.wide_in[lane];
        memcpy(in, d, 16);
        memcpy(in + 4, a, 16);
        in[8] = b0;
        in[9] = b1;
        now->collect(op, ~0u);
        memcpy(d, warp.wide_out[lane], 16);
    }

    // ---- Asynchronous copies ----

    // The GPU may write at any time from here to the wait: garbage now shows who still reads the old bytes or does not
    // wait for the new ones.
    static void copy_async(void* to, const void* from, bool valid) { now->copy_later(to, from, 16, valid ? 16 : 0); }
    void copy_later(void* to, const void* from, unsigned bytes, unsigned valid) {
        if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0) give_up(MISALIGNED_ADDRESS);
        memset(to, GARBAGE, bytes);
        thread().copies.push_back({to, from, bytes, valid});
    }
    static void copy_commit() {
        Thread& t = now->thread();
        t.groups.push_back(t.copies.size());
    }

private:
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
        std::vector<std::pair<emu_View*, emu_View>> views;
        for (Runner* r = me; r; r = r->outer)
            for (auto& b : r->blocks)
                if (b->cluster) views.push_back({b->module->view, *b->module->view});
        turn.unlock();
        usleep(50);
        turn.lock();
        now = me;
        for (auto& v : views) *v.first = v.second;
    }

    static unsigned long long clock() { return monotonic_ns(); }
    static void fail(int code) { now->give_up(code); }
    static void run_ptx(unsigned site, const emu_Operand* operands); // ptx_steps.h
};

inline const emu_Runtime Runner::RUNTIME = {sync_block, exchange, ldmatrix4, mma16816, copy_async, copy_commit,
                                            copy_wait,  clock,    rest,      fail,     run_ptx};
