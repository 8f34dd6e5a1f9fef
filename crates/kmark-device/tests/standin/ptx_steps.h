// What the steps of asm statements do: PTX as kernels write it. What hardware does by itself (copies, products, words sent to other
// blocks) it does late: until then memory holds garbage and results are old, so that who does not wait sees it.
#pragma once
#include "fibers.h"
#include "numbers.h"
#include "tensors.h"

namespace ptx {

inline u64 get(const Frame& f, const Value& v) {
    if (v.kind == Value::ARGUMENT) {
        const emu_Operand& o = f.arguments[v.number];
        if (!o.at) return o.bits;
        u64 x = 0;
        memcpy(&x, o.at, o.size);
        return x;
    }
    return v.kind == Value::REGISTER ? f.registers[v.number] : v.number;
}
inline void set(Frame& f, const Value& v, u64 x) {
    if (v.kind == Value::ARGUMENT) memcpy(f.arguments[v.number].at, &x, f.arguments[v.number].size);
    if (v.kind == Value::REGISTER) f.registers[v.number] = x;
}
inline const Value& operand(const Frame& f, size_t i) {
    if (i >= f.step->values.size()) Runner::the().give_up(ILLEGAL_INSTRUCTION, "too few operands");
    return f.step->values[i];
}
inline u64 get(const Frame& f, size_t i) { return get(f, operand(f, i)); }
inline u64 place(const Frame& f, size_t i) {
    const Value& v = operand(f, i);
    return get(f, v.list.at(0)) + v.number;
}
inline void put(Frame& f, u64 x) { set(f, operand(f, 0), x); }
inline float number(const Frame& f, size_t i) { return float_of((u32)get(f, i)); }
inline void unknown(Runner& r, Frame& f) {
    r.give_up(ILLEGAL_INSTRUCTION, ("the stand-in cannot run " + f.step->text).c_str());
}
inline void nothing(Runner&, Frame&) {}

// ---- Words ---------------------------------------------------------------------------------------------------------

inline void move(Runner& r, Frame& f) {
    const Value& from = operand(f, 1);
    if (from.kind != Value::SPECIAL) return put(f, get(f, from));
    const emu_View& v = r.view();
    const Dim &c = r.launched().cluster, &g = r.launched().grid;
    unsigned block = v.block.x + g.x * (v.block.y + g.y * v.block.z), rank = r.block().rank;
    const std::map<std::string, u64> all = {
        {"tid.x", v.thread->x},
        {"tid.y", v.thread->y},
        {"tid.z", v.thread->z},
        {"ctaid.x", v.block.x},
        {"ctaid.y", v.block.y},
        {"ctaid.z", v.block.z},
        {"ntid.x", v.block_dim.x},
        {"ntid.y", v.block_dim.y},
        {"ntid.z", v.block_dim.z},
        {"nctaid.x", g.x},
        {"nctaid.y", g.y},
        {"nctaid.z", g.z},
        {"laneid", r.lane()},
        {"warpid", r.index() / 32},
        {"smid", block % 16},
        {"cluster_ctarank", rank},
        {"cluster_nctarank", c.x * c.y * c.z},
        {"cluster_ctaid.x", rank % c.x},
        {"cluster_ctaid.y", rank / c.x % c.y},
        {"cluster_ctaid.z", rank / c.x / c.y},
        {"clusterid.x", v.block.x / c.x},
        {"clusterid.y", v.block.y / c.y},
        {"clusterid.z", v.block.z / c.z},
        {"globaltimer", monotonic_ns()},
        {"clock64", monotonic_ns()},
        {"clock", monotonic_ns()},
    };
    auto found = all.find(from.name);
    if (found == all.end()) return unknown(r, f);
    put(f, found->second);
}
inline void select(Runner&, Frame& f) { put(f, get(f, 3) ? get(f, 1) : get(f, 2)); }
inline void compare(Runner& r, Frame& f) {
    const std::string &how = f.step->words.at(1), &type = f.step->words.back();
    auto say = [&](auto a, auto b) {
        if (how == "eq")
            put(f, a == b);
        else if (how == "ne")
            put(f, a != b);
        else if (how == "lt")
            put(f, a < b);
        else if (how == "le")
            put(f, a <= b);
        else if (how == "gt")
            put(f, a > b);
        else if (how == "ge")
            put(f, a >= b);
        else
            unknown(r, f);
    };
    u64 a = get(f, 1), b = get(f, 2);
    if (type == "f32")
        say(float_of((u32)a), float_of((u32)b));
    else if (type == "s32")
        say((int)a, (int)b);
    else if (type == "s64")
        say((int64_t)a, (int64_t)b);
    else if (type == "u64" || type == "b64")
        say(a, b);
    else
        say((u32)a, (u32)b);
}
inline void permute(Runner&, Frame& f) {
    u64 both = (u32)get(f, 1) | get(f, 2) << 32, by = get(f, 3), result = 0;
    for (int i = 0; i < 4; i++) {
        u64 which = by >> 4 * i, byte = both >> (which & 7) * 8 & 0xff;
        result |= (which & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
    }
    put(f, result);
}

// ---- Numbers -------------------------------------------------------------------------------------------------------

inline void convert(Runner& r, Frame& f) {
    const auto& words = f.step->words;
    if (words.size() < 3) return unknown(r, f);
    const std::string &to = words[words.size() - 2], &from = words.back();
    if (from == "f32" && (to == "f16" || to == "bf16")) return put(f, narrow(number(f, 1), format(to)));
    if (from == "f32" && (to == "f16x2" || to == "bf16x2" || to == "e4m3x2" || to == "e5m2x2")) {
        const Format& half = format(to.substr(0, to.size() - 2));
        return put(f, narrow(number(f, 1), half) << half.bits | narrow(number(f, 2), half));
    }
    if (to == "f32" && (from == "f16" || from == "bf16")) return put(f, bits_of(widen((u32)get(f, 1), format(from))));
    if (to == "f16x2" && (from == "e4m3x2" || from == "e5m2x2")) {
        const Format &small = format(from.substr(0, 4)), &half = format("f16");
        u32 v = (u32)get(f, 1);
        return put(f, narrow(widen(v >> 8 & 0xff, small), half) << 16 | narrow(widen(v & 0xff, small), half));
    }
    unknown(r, f);
}
template <class F>
void in_pairs(Runner& r, Frame& f, F of) {
    const std::string& type = f.step->words.back();
    if (type != "f16x2" && type != "bf16x2") return unknown(r, f);
    const Format& half = format(type.substr(0, type.size() - 2));
    u32 a = (u32)get(f, 1), b = (u32)get(f, 2), d = 0;
    for (int shift = 0; shift < 32; shift += 16)
        d |= narrow(of(widen(a >> shift & 0xffff, half), widen(b >> shift & 0xffff, half)), half) << shift;
    put(f, d);
}
inline void multiply(Runner& r, Frame& f) {
    in_pairs(r, f, [](float a, float b) { return a * b; });
}
inline void add(Runner& r, Frame& f) {
    in_pairs(r, f, [](float a, float b) { return a + b; });
}
inline void larger(Runner& r, Frame& f) {
    in_pairs(r, f, [](float a, float b) { return __builtin_fmaxf(a, b); });
}
inline void smaller(Runner& r, Frame& f) {
    in_pairs(r, f, [](float a, float b) { return __builtin_fminf(a, b); });
}
template <float (*of)(float)>
void approximate(Runner& r, Frame& f) {
    if (f.step->words.back() != "f32") return unknown(r, f);
    put(f, bits_of(of(number(f, 1))));
}

// ---- Memory --------------------------------------------------------------------------------------------------------

inline char* memory(Runner& r, Frame& f, u64 address, size_t bytes) {
    if (f.step->shared) return r.shared_at(address, bytes);
    if (address % bytes) r.give_up(MISALIGNED_ADDRESS);
    return (char*)address;
}
inline void load(Runner& r, Frame& f) {
    const Step& s = *f.step;
    const char* from = memory(r, f, place(f, 1), s.bytes * s.count);
    if (s.polls) {
        u64 there = 0;
        memcpy(&there, from, s.bytes);
        r.poll_memory((u64)from, there);
    }
    for (unsigned i = 0; i < s.count; i++) {
        u64 x = 0;
        memcpy(&x, from + i * s.bytes, s.bytes);
        set(f, s.count == 1 ? s.values[0] : s.values[0].list.at(i), x);
    }
}
inline void store(Runner& r, Frame& f) {
    const Step& s = *f.step;
    char* to = memory(r, f, place(f, 0), s.bytes * s.count);
    for (unsigned i = 0; i < s.count; i++) {
        u64 x = get(f, s.count == 1 ? operand(f, 1) : s.values[1].list.at(i));
        memcpy(to + i * s.bytes, &x, s.bytes);
    }
}
// red, whose first operand is the place, and atom, whose first is the old value.
inline void atomic(Runner& r, Frame& f) {
    const Step& s = *f.step;
    size_t at = s.words[0] == "atom";
    char* to = memory(r, f, place(f, at), s.bytes * s.count);
    const std::string& type = s.words.back();
    for (unsigned i = 0; i < s.count; i++, to += s.bytes) {
        u64 old = 0, v = get(f, s.count == 1 ? operand(f, at + 1) : s.values[at + 1].list.at(i)), next;
        memcpy(&old, to, s.bytes);
        if (s.says("add"))
            next = type == "f32" ? bits_of(float_of((u32)old) + float_of((u32)v)) : old + v;
        else if (s.says("inc"))
            next = (u32)old >= (u32)v ? 0 : old + 1;
        else if (s.says("exch"))
            next = v;
        else if (s.says("cas"))
            next = old == v ? get(f, at + 2) : old;
        else if (s.says("or"))
            next = old | v;
        else if (s.says("and"))
            next = old & v;
        else if (s.says("max") && type[0] == 'u')
            next = old > v ? old : v;
        else if (s.says("min") && type[0] == 'u')
            next = old < v ? old : v;
        else
            return unknown(r, f);
        memcpy(to, &next, s.bytes);
        if (at) set(f, s.count == 1 ? s.values[0] : s.values[0].list.at(i), old);
    }
}
inline void matrices_out(Runner& r, Frame& f) { // ldmatrix
    unsigned words[4];
    const auto& to = operand(f, 0).list;
    if (to.size() != 4) return unknown(r, f);
    Runner::ldmatrix4(f.step->says("trans") ? EMU_LDMATRIX_TRANS : EMU_LDMATRIX, words, r.shared_at(place(f, 1), 16));
    for (size_t i = 0; i < 4; i++) set(f, to[i], words[i]);
}
inline void matrices_in(Runner& r, Frame& f) { // stmatrix
    unsigned words[4];
    const auto& from = operand(f, 1).list;
    if (from.size() != 4) return unknown(r, f);
    for (size_t i = 0; i < 4; i++) words[i] = (u32)get(f, from[i]);
    r.stmatrix4(f.step->says("trans") ? EMU_STMATRIX_TRANS : EMU_STMATRIX, words, r.shared_at(place(f, 0), 16));
}
inline void product_of_warp(Runner& r, Frame& f) { // mma.sync
    const auto &to = operand(f, 0).list, &a = operand(f, 1).list, &b = operand(f, 2).list, &c = operand(f, 3).list;
    bool tf32 = f.step->says("tf32");
    if (!f.step->says(tf32 ? "m16n8k8" : "m16n8k16") || to.size() != 4 || a.size() != 4 || b.size() != 2 || c.size() != 4)
        return unknown(r, f);
    float d[4];
    unsigned words[4];
    for (size_t i = 0; i < 4; i++) d[i] = float_of((u32)get(f, c[i])), words[i] = (u32)get(f, a[i]);
    emu_Op op = tf32 ? EMU_MMA_TF32 : f.step->says("bf16") ? EMU_MMA_BF16 : EMU_MMA_F16;
    Runner::mma16816(op, d, words, (u32)get(f, b[0]), (u32)get(f, b[1]));
    for (size_t i = 0; i < 4; i++) set(f, to[i], bits_of(d[i]));
}

// ---- Barriers ------------------------------------------------------------------------------------------------------

struct Barrier {
    u32 count : 15, pending : 15, phase : 1, none : 1; // garbage is no barrier
    int bytes;                                         // that are still to come
    void settle() {
        if (pending == 0 && bytes == 0) phase ^= 1, pending = count;
    }
    void bring(int n) {
        bytes -= n;
        settle();
    }
};
inline Barrier& barrier(Runner& r, u64 address) {
    Barrier& b = *(Barrier*)r.shared_at(address, 8);
    if (b.none) r.give_up(LAUNCH_FAILED, "an mbarrier that was not set up");
    return b;
}
inline void arrive(Runner& r, Barrier& b) {
    if (b.pending == 0) r.give_up(LAUNCH_FAILED, "more arrive at an mbarrier than it was made for");
    b.pending--;
    b.settle();
}
inline void barrier_init(Runner& r, Frame& f) {
    u32 count = (u32)get(f, 1);
    *(Barrier*)r.shared_at(place(f, 0), 8) = Barrier{count & 0x7fff, count & 0x7fff, 0, 0, 0};
}
inline void barrier_arrive(Runner& r, Frame& f) {
    Barrier& b = barrier(r, place(f, 1));
    if (f.step->says("expect_tx")) b.bytes += (int)get(f, 2);
    arrive(r, b);
}
inline void barrier_expect(Runner& r, Frame& f) { barrier(r, place(f, 0)).bytes += (int)get(f, 1); }
inline void barrier_wait(Runner& r, Frame& f) {
    Barrier& b = barrier(r, place(f, 1));
    u32 phase = get(f, 2) & 1;
    if (f.step->says("test_wait"))
        r.poll_memory((u64)&b, b.phase);
    else
        r.wait_until([&] { return b.phase != phase; });
    put(f, b.phase != phase);
}
inline void barrier_of_block(Runner& r, Frame& f) {
    const Step& s = *f.step;
    size_t first = s.says("red");
    u64 id = get(f, first);
    if (s.values.size() == first + 1 && id == 0) return r.sync_threads();
    unsigned all = s.values.size() > first + 1 ? (unsigned)get(f, first + 1) : r.block().live;
    bool wait = !s.says("arrive");
    if (s.says("red") && !s.says("and")) return unknown(r, f);
    bool yes = r.sync_named(id & 15, all, wait, !first || get(f, 3) != 0);
    if (first) put(f, yes);
}
inline void barrier_of_cluster(Runner& r, Frame& f) {
    if (f.step->says("arrive"))
        r.cluster_arrive();
    else
        r.cluster_wait();
}
inline void map_to_block(Runner& r, Frame& f) { put(f, r.in_block(get(f, 1), (unsigned)get(f, 2))); }

// ---- Copies --------------------------------------------------------------------------------------------------------

inline void send(Runner& r, Frame& f) { // st.async
    const Step& s = *f.step;
    unsigned bytes = s.bytes * s.count;
    char* to = r.shared_at(place(f, 0), bytes);
    Barrier& b = barrier(r, place(f, 2));
    std::vector<char> words(bytes);
    for (unsigned i = 0; i < s.count; i++) {
        u64 x = get(f, s.count == 1 ? operand(f, 1) : s.values[1].list.at(i));
        memcpy(&words[i * s.bytes], &x, s.bytes);
    }
    memset(to, GARBAGE, bytes);
    r.do_later([=, &b] {
        memcpy(to, words.data(), bytes);
        b.bring((int)bytes);
    });
}
inline void copy_by_thread(Runner& r, Frame& f) {
    unsigned bytes = (unsigned)get(f, 2), valid = f.step->values.size() > 3 ? (unsigned)get(f, 3) : bytes;
    r.copy_later(r.shared_at(place(f, 0), bytes), (const void*)place(f, 1), bytes, valid);
}
inline void copies_commit(Runner&, Frame&) { Runner::copy_commit(); }
inline void copies_wait(Runner& r, Frame& f) {
    if (f.step->says("wait_all")) Runner::copy_commit();
    r.wait_copies(f.step->says("wait_all") ? 0 : (int)get(f, 0));
}
// The barrier hears when all that the thread began is there.
inline void arrive_when_copied(Runner& r, Frame& f) {
    Barrier& b = barrier(r, place(f, 0));
    if (!f.step->says("noinc")) b.pending++;
    auto copies = r.hand_over_copies();
    r.do_later([copies, &b, &r] {
        Runner::land(*copies);
        if (b.pending == 0) return r.fail_later(LAUNCH_FAILED);
        b.pending--;
        b.settle();
    });
}
inline void fence_for_copies(Runner& r, Frame&) { r.thread().fences++; }
inline void copy_run(Runner& r, Frame& f) { // cp.async.bulk, no tensor
    const auto& words = f.step->words;
    unsigned bytes = (unsigned)get(f, 2);
    if (bytes % 16) r.give_up(MISALIGNED_ADDRESS);
    if (words[3] == "global") {
        char *to = (char*)place(f, 0), *from = r.shared_at(place(f, 1), bytes);
        return r.thread().stores.push_back([=] { memcpy(to, from, bytes); });
    }
    if (words[4] != "global") return unknown(r, f);
    char* to = r.overwritten(place(f, 0), bytes);
    const char* from = (const char*)place(f, 1);
    if ((u64)from % 16) r.give_up(MISALIGNED_ADDRESS);
    Barrier& b = barrier(r, place(f, 3));
    r.do_later([=, &b] {
        memcpy(to, from, bytes);
        b.bring((int)bytes);
    });
}
inline void copy_box(Runner& r, Frame& f) {
    const Step& s = *f.step;
    bool out = s.words.at(5) == "global";
    const Value& where = operand(f, out ? 0 : 1);
    const TensorMap& map = *(const TensorMap*)get(f, where.list.at(0));
    if (strcmp(map.name, "STANDIN TENSOR") || (u64)&map % 64) r.give_up(LAUNCH_FAILED, "no tensor map");
    if (where.list.size() != 2 || where.list[1].list.size() != map.rank)
        r.give_up(ILLEGAL_INSTRUCTION, "a box of other dimensions than the map");
    std::vector<int> from(map.rank);
    for (u64 i = 0; i < map.rank; i++) from[i] = (int)get(f, where.list[1].list[i]);
    unsigned bytes = map.box_bytes();
    u64 address = place(f, out ? 1 : 0);
    if (address % 128) r.give_up(MISALIGNED_ADDRESS, "a box that does not begin at a multiple of 128 bytes");
    if (out) {
        char* tile = r.shared_at(address, bytes);
        return r.thread().stores.push_back([=] { map.move(tile, from, true); });
    }
    u64 at = place(f, 2);
    std::vector<std::pair<char*, Barrier*>> to;
    if (!s.says("multicast::cluster"))
        to.push_back({r.overwritten(address, bytes), &barrier(r, at)});
    else
        for (unsigned mask = (unsigned)get(f, 3), i = 0; mask >> i; i++)
            if (mask >> i & 1)
                to.push_back({r.overwritten(r.in_block(address, i), bytes), &barrier(r, r.in_block(at, i))});
    r.do_later([=] {
        for (auto& one : to) {
            map.move(one.first, from, false);
            one.second->bring((int)bytes);
        }
    });
}
inline void stores_commit(Runner& r, Frame&) { r.thread().store_groups.push_back(r.thread().stores.size()); }
inline void stores_wait(Runner& r, Frame& f) {
    Thread& t = r.thread();
    size_t end = Runner::first_groups(t.store_groups, (int)get(f, 0));
    for (size_t i = 0; i < end; i++) t.stores[i]();
    t.stores.erase(t.stores.begin(), t.stores.begin() + (long)end);
}

// ---- Products of warpgroups ----------------------------------------------------------------------------------------

inline void product_begin(Runner& r, Frame& f) {
    const Step& s = *f.step;
    Product p;
    p.format = s.format;
    p.n = (int)s.count;
    const auto &d = operand(f, 0).list, &held = operand(f, 1).list;
    bool half = p.format->bits == 16;
    if (d.size() != s.count / 2 || get(f, 4) != 1 || get(f, 5) != 1 || (s.values.size() > 6) != half)
        return unknown(r, f);
    p.d.reserve(d.size());
    for (const Value& v : d) p.d.push_back((float*)f.arguments[v.number].at);
    p.add = get(f, 3) != 0;
    p.a_held = !held.empty();
    p.a = p.a_held ? 0 : get(f, 1);
    p.b = get(f, 2);
    if (!p.a_held) r.read_by_product((p.a & 0x3fff) * 16, 64 * 32);
    r.read_by_product((p.b & 0x3fff) * 16, (size_t)p.n * 32);
    p.a_across = half && !p.a_held && get(f, 6);
    p.b_across = half && get(f, p.a_held ? 6 : 7);
    if (p.a_held) {
        for (size_t i = 0; i < 4; i++) r.warp().wide_in[r.lane()][i] = (u32)get(f, held.at(i));
        r.collect(EMU_HELD, ~0u);
        for (unsigned i = 0; i < 16; i++) p.held[i] = r.warp().wide_out[r.lane() / 4 * 4 + i / 4][i % 4];
    }
    r.thread().products.push_back(std::move(p));
}
inline void products_commit(Runner& r, Frame&) { r.thread().product_groups.push_back(r.thread().products.size()); }
inline void products_wait(Runner& r, Frame& f) {
    Thread& t = r.thread();
    size_t end = Runner::first_groups(t.product_groups, (int)get(f, 0));
    for (size_t i = 0; i < end; i++) finish(t.products[i], r.block().base, r.index());
    t.products.erase(t.products.begin(), t.products.begin() + (long)end);
}

// Any lane may be it; kernels often take lane 0 for it, so here it is the last.
inline void elect(Runner& r, Frame& f) {
    unsigned mask = (u32)get(f, 2), live = r.warp().live;
    r.collect(EMU_SYNC, mask);
    set(f, operand(f, 1), r.lane() == 31 - (unsigned)__builtin_clz(mask & live));
}

inline void wait_for_launch(Runner& r, Frame&) {
    if (int code = r.end_before()) r.give_up(code);
}
inline void rest(Runner& r, Frame& f) { r.sleep((unsigned)get(f, 0)); }

// ---- Which is which ------------------------------------------------------------------------------------------------

inline void jump(Runner&, Frame& f) { f.next = f.step->jump; }

// By how names begin; the first that fits.
inline const struct {
    const char* name;
    void (*run)(Runner&, Frame&);
} STEPS[] = {
    {"bra", jump},
    {"mov.", move},
    {"selp.", select},
    {"setp.", compare},
    {"prmt.b32", permute},
    {"cvt.", convert},
    {"mul.", multiply},
    {"add.", add},
    {"max.", larger},
    {"min.", smaller},
    {"ex2.approx.", approximate<exp2f>},
    {"rcp.approx.", approximate<reciprocal>},
    {"rsqrt.approx.", approximate<root_reciprocal>},
    {"ld.", load},
    {"st.async.", send},
    {"st.", store},
    {"red.", atomic},
    {"atom.", atomic},
    {"ldmatrix.", matrices_out},
    {"stmatrix.", matrices_in},
    {"mma.sync.", product_of_warp},
    {"mbarrier.init.", barrier_init},
    {"mbarrier.arrive.", barrier_arrive},
    {"mbarrier.expect_tx.", barrier_expect},
    {"mbarrier.try_wait.parity.", barrier_wait},
    {"mbarrier.test_wait.parity.", barrier_wait},
    {"bar.", barrier_of_block},
    {"barrier.cluster.", barrier_of_cluster},
    {"mapa.", map_to_block},
    {"cp.async.commit_group", copies_commit},
    {"cp.async.wait_", copies_wait},
    {"cp.async.mbarrier.arrive.", arrive_when_copied},
    {"cp.async.ca.", copy_by_thread},
    {"cp.async.cg.", copy_by_thread},
    {"cp.async.bulk.prefetch.", nothing},
    {"cp.async.bulk.commit_group", stores_commit},
    {"cp.async.bulk.wait_group", stores_wait},
    {"cp.async.bulk.tensor.", copy_box},
    {"cp.async.bulk.", copy_run},
    {"wgmma.mma_async.", product_begin},
    {"wgmma.commit_group.", products_commit},
    {"wgmma.wait_group.", products_wait},
    {"nanosleep.", rest},
    {"elect.sync", elect},
    // What only says how soon something is seen or wanted, or who has how many registers: here all is seen at once.
    {"wgmma.fence.", nothing},
    {"fence.proxy.async", fence_for_copies},
    {"fence.", nothing},
    {"membar.", nothing},
    {"prefetch.", nothing},
    {"prefetchu.", nothing},
    {"griddepcontrol.launch_dependents", nothing},
    {"griddepcontrol.wait", wait_for_launch},
    {"setmaxnreg.", nothing},
    {"createpolicy.", nothing},
};

inline std::unique_ptr<Program> prepare(const char* text) {
    auto program = std::make_unique<Program>(Reader::read(text));
    for (Step& s : program->steps) {
        std::string name;
        for (auto& word : s.words) name += (name.empty() ? "" : ".") + word;
        s.run = unknown;
        for (auto& known : STEPS)
            if (name.compare(0, strlen(known.name), known.name) == 0) {
                s.run = known.run;
                break;
            }
        s.bytes = (unsigned)atoi(s.words.back().c_str() + 1) / 8;
        bool weak = true;
        for (auto& word : s.words) {
            if (word == "v2" || word == "v4") s.count = word[1] - '0';
            if (word.compare(0, 6, "shared") == 0) s.shared = true;
            if (word == "gpu" || word == "sys") weak = false;
        }
        s.polls = !weak && (s.says("relaxed") || s.says("acquire"));
        if (s.run == product_begin) { // wgmma.mma_async.sync.aligned.m64nNkK.f32.A.B
            unsigned k = 0;
            s.format = &format(s.words.back());
            bool whole = s.words.size() == 8 && sscanf(s.words[4].c_str(), "m64n%uk%u", &s.count, &k) == 2;
            if (!whole || s.words[5] != "f32" || !s.format->bits || k != 256 / (unsigned)s.format->bits)
                s.run = unknown;
        }
        if ((s.run == load || s.run == store || s.run == atomic || s.run == send) && s.bytes == 0) s.run = unknown;
    }
    return program;
}

} // namespace ptx

inline void Runner::run_ptx(unsigned site, const emu_Operand* operands) {
    Runner& r = *now;
    auto& programs = r.code->programs;
    if (programs.size() <= site) programs.resize(site + 1);
    if (!programs[site]) programs[site] = ptx::prepare(r.at->module->texts[site]);
    const ptx::Program& program = *programs[site];
    ptx::Frame f = {operands, nullptr, {}, 0};
    while ((size_t)f.next < program.steps.size()) {
        f.step = &program.steps[(size_t)f.next++];
        if (f.step->guard >= 0 && (f.registers[f.step->guard] != 0) == f.step->unless) continue;
        f.step->run(r, f);
    }
}
