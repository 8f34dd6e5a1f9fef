// Faults of kernels: the launch ends, the process goes on.
#pragma once
#include "fiber.h"

class Faults {
public:
    static inline thread_local sigjmp_buf* jump = nullptr; // where to go

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

private:
    static inline struct sigaction before[64];

    static void on_fault(int signal, siginfo_t* info, void* context) {
        if (jump) siglongjmp(*jump, signal);
        struct sigaction& old = before[signal]; // not a kernel's: whoever was there first
        if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal, info, context);
        if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal);
        sigaction(signal, &old, nullptr);
    }
};
