// One fiber: a stack of its own, entered and left by a switch of contexts.
#pragma once
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#define STANDIN_DRIVER
#include "emulate.h"

enum { ILLEGAL_ADDRESS = 700, ILLEGAL_INSTRUCTION = 715, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };
constexpr uint8_t GARBAGE = 0xcd;

inline uint64_t monotonic_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#if defined(__x86_64__) && !defined(STANDIN_UCONTEXT)
// Only what a call must preserve: about ten times faster than ucontext, which asks the kernel for the signal mask.
extern "C" void standin_switch(void** from, void* to);
asm(R"(
.text
.type standin_switch,@function
.hidden standin_switch
.globl standin_switch
standin_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size standin_switch,.-standin_switch
)");
struct Context {
    void* sp = nullptr;
    void start(char* top, void (*entry)()) {
        void** at = (void**)top;
        *--at = nullptr; // the return address that `entry` believes to have; also keeps the stack aligned
        *--at = (void*)entry;
        for (int saved = 0; saved < 6; saved++) *--at = nullptr;
        sp = at;
    }
    static void swap(Context& from, Context& to) { standin_switch(&from.sp, to.sp); }
};
#else
#include <ucontext.h>
struct Context {
    ucontext_t at;
    void start(char* top, void (*entry)()) {
        getcontext(&at);
        at.uc_stack.ss_size = 32768; // makecontext wants a size; the guard page is what limits the stack
        at.uc_stack.ss_sp = top - at.uc_stack.ss_size;
        at.uc_link = nullptr;
        makecontext(&at, entry, 0);
    }
    static void swap(Context& from, Context& to) { swapcontext(&from.at, &to.at); }
};
#endif

struct Fiber {
    static constexpr size_t STACK = 256 << 10, GUARD = 4096;
    Context context;
    char* top;

    Fiber() {
        char* memory = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                                   -1, 0);
        if (memory == MAP_FAILED) abort();
        mprotect(memory, GUARD, PROT_NONE);
        // Stacks that all start at the same place of a page would fight for the same lines of the cache.
        static unsigned count = 0;
        top = memory + STACK - count++ % 61 * 192;
    }
};
