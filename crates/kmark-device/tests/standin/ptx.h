// The text of an asm statement, taken apart: steps with operands that are found once. What a step does is in ptx_steps.h.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <string>
#include <vector>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

class Runner;
struct Format;
struct emu_Operand;

namespace ptx {

struct Value {
    enum Kind { ARGUMENT, REGISTER, NUMBER, SPECIAL, NOTHING, LIST, PLACE } kind = NOTHING;
    u64 number = 0;          // of the argument or register; a number; how far behind the address
    std::string name;        // of something special
    std::vector<Value> list; // of a place: its address, then coordinates
};

struct Step;
struct Frame {
    const emu_Operand* arguments;
    const Step* step;
    u64 registers[16];
    int next; // step
};
struct Step {
    void (*run)(Runner&, Frame&);
    std::string text;
    std::vector<std::string> words; // of its name, between dots
    std::vector<Value> values;
    int guard = -1; // register that says whether it is done, or not done
    bool unless = false;
    int jump = -1;
    // What the name says, for steps that move memory: bytes of an element, how many, and where they lie.
    unsigned bytes = 0, count = 1;
    bool shared = false, polls = false;
    const Format* format = nullptr; // of products

    bool says(const char* word) const {
        for (auto& w : words)
            if (w == word) return true;
        return false;
    }
};
struct Program {
    std::vector<Step> steps;
};

class Reader {
public:
    static Program read(const std::string& text) {
        Reader r(text);
        r.all();
        for (auto& jump : r.jumps) r.program.steps[jump.first].jump = (int)r.labels[jump.second];
        return std::move(r.program);
    }

private:
    const std::string& in;
    size_t at = 0;
    Program program;
    std::map<std::string, u64> registers, labels;
    std::vector<std::pair<size_t, std::string>> jumps;

    explicit Reader(const std::string& text) : in(text) {}

    static bool letter(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.'; }
    void skip() {
        while (at < in.size() && (isspace((unsigned char)in[at]) || strchr(",|", in[at]))) at++;
    }
    std::string word() {
        size_t start = at;
        while (at < in.size() && (letter(in[at]) || (in[at] == ':' && at + 1 < in.size() && in[at + 1] == ':' && ++at)))
            at++;
        return in.substr(start, at - start);
    }

    void all() {
        for (skip(); at < in.size(); skip()) {
            if (strchr("{};", in[at]))
                at++;
            else
                statement();
        }
    }

    void statement() {
        Step step;
        size_t start = at;
        if (in[at] == '@') {
            step.unless = in[++at] == '!';
            at += step.unless;
            step.guard = (int)registers[word()];
            skip();
        }
        std::string name = word();
        skip();
        if (at < in.size() && in[at] == ':') {
            at++;
            labels[name] = program.steps.size();
            return;
        }
        if (name.compare(0, 4, ".reg") == 0) {
            word(); // its type
            for (skip(); at < in.size() && in[at] != ';'; skip()) registers.insert({word(), registers.size()});
            return;
        }
        for (size_t dot; (dot = name.find('.')) != std::string::npos; name.erase(0, dot + 1))
            step.words.push_back(name.substr(0, dot));
        step.words.push_back(name);
        if (step.words[0] == "bra") {
            jumps.push_back({program.steps.size(), word()});
        } else {
            for (skip(); at < in.size() && in[at] != ';'; skip()) step.values.push_back(value());
        }
        step.text = in.substr(start, at - start);
        program.steps.push_back(step);
    }

    Value value() {
        Value v;
        if (in[at] == '{' || in[at] == '[') {
            v.kind = in[at] == '{' ? Value::LIST : Value::PLACE;
            char end = in[at] == '{' ? '}' : ']';
            for (at++, skip(); at < in.size() && in[at] != end; skip()) {
                if (in[at] == '+') {
                    at++;
                    skip();
                    v.number = value().number;
                } else {
                    v.list.push_back(value());
                }
            }
            at++;
            return v;
        }
        bool minus = in[at] == '-';
        at += minus;
        std::string name = word();
        if (name.empty())
            at++; // nothing that can be read: the step will not be known
        else if (name == "_")
            v.kind = Value::NOTHING;
        else if (name[0] == '%' && name[1] == '%')
            v.kind = Value::SPECIAL, v.name = name.substr(2);
        else if (name[0] == '%')
            v.kind = Value::ARGUMENT, v.number = strtoull(name.c_str() + 1, nullptr, 10);
        else if (name.compare(0, 2, "0f") == 0)
            v.kind = Value::NUMBER, v.number = strtoull(name.c_str() + 2, nullptr, 16);
        else if (isdigit((unsigned char)name[0]))
            v.kind = Value::NUMBER, v.number = number(name, minus);
        else
            v.kind = Value::REGISTER, v.number = registers.insert({name, registers.size()}).first->second;
        return v;
    }
    // Of floating point numbers the bits of the 32-bit one: others are not written in asm statements here.
    static u64 number(const std::string& name, bool minus) {
        if (name.find('.') != std::string::npos) {
            float f = strtof(name.c_str(), nullptr) * (minus ? -1.0f : 1.0f);
            u32 bits;
            memcpy(&bits, &f, 4);
            return bits;
        }
        u64 v = strtoull(name.c_str(), nullptr, 0);
        return minus ? 0 - v : v;
    }
};

} // namespace ptx
