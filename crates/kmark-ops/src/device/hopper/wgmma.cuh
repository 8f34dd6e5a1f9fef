// Products on Hopper's tensor cores (wgmma): a warpgroup of 128 threads multiplies 64 rows of A by N columns of B, both in
// shared memory, 32 bytes of k at a time; of f32, the upper 19 bits are multiplied (TF32). d[] of a thread: for each 8 columns j,
// d[4j] and d[4j+1] are row 16*warp + lane/4, columns 8j + 2*(lane%4) and the next; d[4j+2] and d[4j+3] the same 8 rows below.
// The products run by themselves: fence, any number of them, commit, and later wait before d is touched or the operands are
// overwritten.
#pragma once
#include "hopper/barrier.cuh"

// Registers and shared memory that were written before are ready for the products that follow.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// At most N groups still run.
template <int N> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// An operand in shared memory as copies with swizzle=128 leave it; `p` lies at a multiple of 1024 bytes.
// Rows of 128 bytes along k: the next 32 bytes of k are 2 further on.
DEVICE u64 along_k(const void* p) {
    return (u64)((shared_address(p) & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
// Rows across k, 64 elements of 2 bytes each, `next` bytes to the following 64: the next 16 of k are 128 further on.
DEVICE u64 across_k(const void* p, int next) {
    return (u64)((shared_address(p) & 0x3ffff) >> 4) | (u64)(next >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

// d = a b, or d += a b with `add`. N follows from d. ACROSS_A, ACROSS_B: which descriptors a and b are (16-bit types only).
#define KM_OUT8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define KM_OUT4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KM_REGS8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define KM_REGS16 KM_REGS8 "," "%8,%9,%10,%11,%12,%13,%14,%15"
#define KM_REGS24 KM_REGS16 "," "%16,%17,%18,%19,%20,%21,%22,%23"
#define KM_REGS32 KM_REGS24 "," "%24,%25,%26,%27,%28,%29,%30,%31"
#define KM_REGS40 KM_REGS32 "," "%32,%33,%34,%35,%36,%37,%38,%39"
#define KM_REGS48 KM_REGS40 "," "%40,%41,%42,%43,%44,%45,%46,%47"
#define KM_REGS56 KM_REGS48 "," "%48,%49,%50,%51,%52,%53,%54,%55"
#define KM_REGS64 KM_REGS56 "," "%56,%57,%58,%59,%60,%61,%62,%63"
#define KM_REGS72 KM_REGS64 "," "%64,%65,%66,%67,%68,%69,%70,%71"
#define KM_REGS80 KM_REGS72 "," "%72,%73,%74,%75,%76,%77,%78,%79"
#define KM_REGS88 KM_REGS80 "," "%80,%81,%82,%83,%84,%85,%86,%87"
#define KM_REGS96 KM_REGS88 "," "%88,%89,%90,%91,%92,%93,%94,%95"
#define KM_REGS104 KM_REGS96 "," "%96,%97,%98,%99,%100,%101,%102,%103"
#define KM_REGS112 KM_REGS104 "," "%104,%105,%106,%107,%108,%109,%110,%111"
#define KM_REGS120 KM_REGS112 "," "%112,%113,%114,%115,%116,%117,%118,%119"
#define KM_REGS128 KM_REGS120 "," "%120,%121,%122,%123,%124,%125,%126,%127"
#define KM_REGS20 KM_REGS16 "," "%16,%17,%18,%19"
#define KM_REGS28 KM_REGS24 "," "%24,%25,%26,%27"
#define KM_REGS36 KM_REGS32 "," "%32,%33,%34,%35"
#define KM_REGS44 KM_REGS40 "," "%40,%41,%42,%43"
#define KM_REGS52 KM_REGS48 "," "%48,%49,%50,%51"
#define KM_REGS60 KM_REGS56 "," "%56,%57,%58,%59"
#define KM_REGS68 KM_REGS64 "," "%64,%65,%66,%67"
#define KM_REGS76 KM_REGS72 "," "%72,%73,%74,%75"
#define KM_REGS84 KM_REGS80 "," "%80,%81,%82,%83"
#define KM_REGS92 KM_REGS88 "," "%88,%89,%90,%91"
#define KM_REGS100 KM_REGS96 "," "%96,%97,%98,%99"
#define KM_REGS108 KM_REGS104 "," "%104,%105,%106,%107"
#define KM_REGS116 KM_REGS112 "," "%112,%113,%114,%115"
#define KM_REGS124 KM_REGS120 "," "%120,%121,%122,%123"
#define KM_OUTS8 KM_OUT8(0)
#define KM_OUTS16 KM_OUTS8, KM_OUT8(8)
#define KM_OUTS24 KM_OUTS16, KM_OUT8(16)
#define KM_OUTS32 KM_OUTS24, KM_OUT8(24)
#define KM_OUTS40 KM_OUTS32, KM_OUT8(32)
#define KM_OUTS48 KM_OUTS40, KM_OUT8(40)
#define KM_OUTS56 KM_OUTS48, KM_OUT8(48)
#define KM_OUTS64 KM_OUTS56, KM_OUT8(56)
#define KM_OUTS72 KM_OUTS64, KM_OUT8(64)
#define KM_OUTS80 KM_OUTS72, KM_OUT8(72)
#define KM_OUTS88 KM_OUTS80, KM_OUT8(80)
#define KM_OUTS96 KM_OUTS88, KM_OUT8(88)
#define KM_OUTS104 KM_OUTS96, KM_OUT8(96)
#define KM_OUTS112 KM_OUTS104, KM_OUT8(104)
#define KM_OUTS120 KM_OUTS112, KM_OUT8(112)
#define KM_OUTS128 KM_OUTS120, KM_OUT8(120)
#define KM_OUTS20 KM_OUTS16, KM_OUT4(16)
#define KM_OUTS28 KM_OUTS24, KM_OUT4(24)
#define KM_OUTS36 KM_OUTS32, KM_OUT4(32)
#define KM_OUTS44 KM_OUTS40, KM_OUT4(40)
#define KM_OUTS52 KM_OUTS48, KM_OUT4(48)
#define KM_OUTS60 KM_OUTS56, KM_OUT4(56)
#define KM_OUTS68 KM_OUTS64, KM_OUT4(64)
#define KM_OUTS76 KM_OUTS72, KM_OUT4(72)
#define KM_OUTS84 KM_OUTS80, KM_OUT4(80)
#define KM_OUTS92 KM_OUTS88, KM_OUT4(88)
#define KM_OUTS100 KM_OUTS96, KM_OUT4(96)
#define KM_OUTS108 KM_OUTS104, KM_OUT4(104)
#define KM_OUTS116 KM_OUTS112, KM_OUT4(112)
#define KM_OUTS124 KM_OUTS120, KM_OUT4(120)
#define KM_WGMMA(N, K, TYPES, REGS, A, B, ADD, TAIL) \
    "{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k" #K ".f32." TYPES \
    " {" REGS "}, %" #A ", %" #B ", add, 1, 1" TAIL ";\n}"
// R is N / 2; A to TB are the numbers of the operands behind the R results.
#define KM_PRODUCT(N, R, A, B, ADD, TA, TB) \
    template <class T, bool ACROSS_A = false, bool ACROSS_B = false> DEVICE void wgmma(float (&d)[R], u64 a, u64 b, int add) { \
        if constexpr (is<T, bf16>) \
            asm volatile(KM_WGMMA(N, 16, "bf16.bf16", KM_REGS##R, A, B, ADD, ", %" #TA ", %" #TB) : KM_OUTS##R : "l"(a), "l"(b), "r"(add), "n"(ACROSS_A), "n"(ACROSS_B)); \
        else if constexpr (is<T, f16>) \
            asm volatile(KM_WGMMA(N, 16, "f16.f16", KM_REGS##R, A, B, ADD, ", %" #TA ", %" #TB) : KM_OUTS##R : "l"(a), "l"(b), "r"(add), "n"(ACROSS_A), "n"(ACROSS_B)); \
        else if constexpr (is<T, float>) \
            asm volatile(KM_WGMMA(N, 8, "tf32.tf32", KM_REGS##R, A, B, ADD, "") : KM_OUTS##R : "l"(a), "l"(b), "r"(add)); \
        else if constexpr (is<T, e4m3>) \
            asm volatile(KM_WGMMA(N, 32, "e4m3.e4m3", KM_REGS##R, A, B, ADD, "") : KM_OUTS##R : "l"(a), "l"(b), "r"(add)); \
        else \
            asm volatile(KM_WGMMA(N, 32, "e5m2.e5m2", KM_REGS##R, A, B, ADD, "") : KM_OUTS##R : "l"(a), "l"(b), "r"(add)); \
    }
KM_PRODUCT(16, 8, 8, 9, 10, 11, 12)
KM_PRODUCT(32, 16, 16, 17, 18, 19, 20)
KM_PRODUCT(40, 20, 20, 21, 22, 23, 24)
KM_PRODUCT(48, 24, 24, 25, 26, 27, 28)
KM_PRODUCT(56, 28, 28, 29, 30, 31, 32)
KM_PRODUCT(64, 32, 32, 33, 34, 35, 36)
KM_PRODUCT(72, 36, 36, 37, 38, 39, 40)
KM_PRODUCT(80, 40, 40, 41, 42, 43, 44)
KM_PRODUCT(88, 44, 44, 45, 46, 47, 48)
KM_PRODUCT(96, 48, 48, 49, 50, 51, 52)
KM_PRODUCT(104, 52, 52, 53, 54, 55, 56)
KM_PRODUCT(112, 56, 56, 57, 58, 59, 60)
KM_PRODUCT(120, 60, 60, 61, 62, 63, 64)
KM_PRODUCT(128, 64, 64, 65, 66, 67, 68)
KM_PRODUCT(136, 68, 68, 69, 70, 71, 72)
KM_PRODUCT(144, 72, 72, 73, 74, 75, 76)
KM_PRODUCT(152, 76, 76, 77, 78, 79, 80)
KM_PRODUCT(160, 80, 80, 81, 82, 83, 84)
KM_PRODUCT(168, 84, 84, 85, 86, 87, 88)
KM_PRODUCT(176, 88, 88, 89, 90, 91, 92)
KM_PRODUCT(184, 92, 92, 93, 94, 95, 96)
KM_PRODUCT(192, 96, 96, 97, 98, 99, 100)
KM_PRODUCT(200, 100, 100, 101, 102, 103, 104)
KM_PRODUCT(208, 104, 104, 105, 106, 107, 108)
KM_PRODUCT(216, 108, 108, 109, 110, 111, 112)
KM_PRODUCT(224, 112, 112, 113, 114, 115, 116)
KM_PRODUCT(232, 116, 116, 117, 118, 119, 120)
KM_PRODUCT(240, 120, 120, 121, 122, 123, 124)
KM_PRODUCT(248, 124, 124, 125, 126, 127, 128)
KM_PRODUCT(256, 128, 128, 129, 130, 131, 132)

// Four 8x8 matrices of 16-bit elements, a pair of each thread per matrix, into shared memory; lane i gives the address of row
// i % 8 of matrix i / 8.
DEVICE void stmatrix4(void* row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(shared_address(row)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
// The same, turned: lane i gives the address of column i % 8 of matrix i / 8, whose 8 elements lie side by side.
DEVICE void stmatrix4_turned(void* column, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(shared_address(column)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
