// Boxes of tensors and products of tiles in shared memory, as Hopper's copies and tensor cores see them.
#pragma once
#include "fibers.h"
#include "numbers.h"

// Pieces of 16 bytes within 8 rows of 32, 64 or 128 are swapped by the row they are in. `p` lies as far behind a multiple of 1024 as
// its address in shared memory.
inline char* swizzled(char* p, unsigned mode) {
    return (char*)((uintptr_t)p ^ ((uintptr_t)p >> 7 & ((1u << mode) - 1)) << 4);
}

// What cuTensorMapEncodeTiled writes.
struct TensorMap {
    char name[16];
    u64 address, type, rank, dims[5], strides[4]; // strides in bytes, not of the innermost dimension
    u8 box[5], steps[5], swizzle, unused[5];      // box: one less; swizzle: 0, 1, 2, 3 for 0, 32, 64, 128 bytes

    u64 element() const {
        static const u8 BYTES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
        return BYTES[type];
    }
    u64 length(u64 i) const { return ((u64)box[i] + steps[i]) / steps[i]; } // of the box, in elements that are copied
    unsigned box_bytes() const {
        u64 bytes = element();
        for (u64 i = 0; i < rank; i++) bytes *= length(i);
        return (unsigned)bytes;
    }
    // Between shared memory and the box at `from`; what lies outside the tensor is read as zero and not written.
    void move(char* tile, const std::vector<int>& from, bool out) const {
        u64 size = element(), at[5] = {};
        for (unsigned done = 0, all = box_bytes(); done < all; done += (unsigned)size) {
            char *place = (char*)address, *here = swizzled(tile + done, swizzle);
            bool inside = true;
            for (u64 i = 0; i < rank; i++) {
                int64_t index = from[i] + (int64_t)(at[i] * steps[i]);
                inside &= index >= 0 && index < (int64_t)dims[i];
                place += index * (int64_t)(i == 0 ? size : strides[i - 1]);
            }
            if (out && inside) memcpy(place, here, size);
            if (!out && inside) memcpy(here, place, size);
            if (!out && !inside) memset(here, 0, size);
            for (u64 i = 0; i < rank && ++at[i] == length(i); i++) at[i] = 0;
        }
    }
};
static_assert(sizeof(TensorMap) == 128, "as large as CUDA's");

// An operand of a product: rows of 8 by 32 to 128 bytes of k, or, across, of k by as many bytes of rows.
struct Operand {
    char* start;
    u64 leading, stride, width;
    unsigned mode;
    bool across;

    Operand(u64 descriptor, char* base, bool across) : across(across) {
        start = base + (descriptor & 0x3fff) * 16;
        leading = (descriptor >> 16 & 0x3fff) * 16;
        stride = (descriptor >> 32 & 0x3fff) * 16;
        static const unsigned MODES[] = {0, 3, 2, 1};
        mode = MODES[descriptor >> 62];
        width = mode ? 16u << mode : 0;
    }
    // 32 bytes of k of a row; across, k of elements of two bytes.
    void read(u64 row, const Format& f, float* to) const {
        u64 size = (u64)f.bits / 8;
        if (across) {
            char* first = start + row / (width / 2) * leading + row % (width / 2) * 2;
            for (u64 k = 0; k < 16; k++) to[k] = widen_at(swizzled(first + k / 8 * stride + k % 8 * width, mode), f);
            return;
        }
        for (u64 piece = 0; piece < 2; piece++) {
            const char* from = swizzled(
                start + row / 8 * stride + (mode ? row % 8 * width + piece * 16 : row % 8 * 16 + piece * leading),
                mode);
            for (u64 i = 0; i < 16; i += size) *to++ = widen_at(from + i, f);
        }
    }
    static float widen_at(const char* p, const Format& f) {
        u32 bits = 0;
        memcpy(&bits, p, (size_t)f.bits / 8);
        if (f.bias != 127) return widen(bits, f);
        return float_of(bits << (32 - f.bits) & ~0u << (23 - f.fraction));
    }
};

// What one thread of the warpgroup gets of a product: two rows, a pair of every eight columns.
inline void finish(const Product& p, char* base, unsigned thread) {
    const Format& f = *p.format;
    const unsigned lane = thread % 32, first = thread / 32 % 4 * 16 + lane / 4, all = 256 / (unsigned)f.bits;
    float a[2][32], b[32];
    Operand left(p.a, base, p.a_across), right(p.b, base, p.b_across);
    for (unsigned r = 0; r < 2; r++) {
        if (!p.a_held) left.read(first + 8 * r, f, a[r]);
        // Held by lane k % 8 / 2 of four, in its word k / 8 * 2 + r.
        else
            for (unsigned k = 0; k < 16; k++)
                a[r][k] = widen(p.held[k % 8 / 2 * 4 + k / 8 * 2 + r] >> k % 2 * 16 & 0xffff, f);
    }
    for (unsigned j = 0; j < (unsigned)p.n / 8; j++)
        for (unsigned i = 0; i < 2; i++) {
            right.read(8 * j + lane % 4 * 2 + i, f, b);
            for (unsigned r = 0; r < 2; r++) {
                float& d = *p.d[4 * j + 2 * r + i];
                float sum = p.add ? d : 0.0f;
                for (unsigned k = 0; k < all; k++) sum += a[r][k] * b[k];
                d = sum;
            }
        }
}
