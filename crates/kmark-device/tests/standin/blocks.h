// What a launch consists of while it runs: clusters of blocks, their warps and threads, and what each waits for.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fiber.h"
#include "warps.h"

struct Dim {
    unsigned x, y, z;
};

// A module, as often as blocks of it run at once: every copy has variables of its own, and so shared memory.
struct Code {
    std::vector<const emu_Module*> copies;
    std::function<const emu_Module*()> another;          // null if there can be no more
    std::vector<std::unique_ptr<ptx::Program>> programs; // of asm statements that have run
};

struct Shape {
    Dim grid, block, cluster;
    unsigned shared;
    unsigned resident; // blocks that the GPU holds at once
};

// Bytes that are not valid become zero.
struct Copy {
    void* to;
    const void* from;
    unsigned bytes, valid;
};

// Products that were begun and not waited for: their results stay old until then.
struct Product {
    std::vector<float*> d;
    u64 a, b;
    u32 held[16]; // rows of A in registers, of the lanes that share them
    const Format* format;
    bool add, a_held, a_across, b_across;
    int n;
};

struct Thread {
    emu_Thread index;
    Fiber* fiber = nullptr; // null before the first and after the last instruction
    emu_Op op;              // what it waits for in its warp, and with whom
    unsigned mask;
    std::vector<Copy> copies; // under way, and where each committed group of them ends
    std::vector<size_t> groups;
    std::vector<std::shared_ptr<std::vector<Copy>>> handed; // copies that a barrier hears of
    std::vector<std::function<void()>> stores;              // of boxes; groups likewise
    std::vector<size_t> store_groups;
    std::vector<Product> products;
    std::vector<size_t> product_groups;
    unsigned cluster_phase = 0;
    u64 fences = 0;          // between what it reads and writes itself and what copies do
    std::map<u64, u64> seen; // what it polled, and what stood there
};

// Who asked last for 16 bytes of shared memory by ldmatrix, and after how many fences.
struct Asked {
    const Thread* by = nullptr;
    u64 fences = 0;
};

struct Cluster {
    unsigned live, arrived = 0, phase = 0, count; // threads; blocks
    struct Block* blocks[64];
};

// `bar` 0 to 15.
struct Named {
    unsigned arrived = 0, lanes[32] = {};
    bool all = true, result = false;
};

struct Block {
    Thread threads[1024];
    Warp warps[32];
    unsigned live, at_barrier, ready_warps, polling_warps, rank;
    Named named[16];
    const emu_Module* module;
    void (*run)(void**);
    Cluster* cluster = nullptr; // null: nothing runs here
    char* base;                 // shared address 0
    char* end;
    char *dynamic, *dynamic_end; // what the launch asked for
    std::vector<Asked> asked;    // from `base` on
};
