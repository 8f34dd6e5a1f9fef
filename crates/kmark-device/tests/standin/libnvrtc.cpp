// A stand-in for NVRTC: compiles CUDA kernels with g++ to a shared object for the CPU, which the stand-in driver
// (libcuda.cpp) loads in place of a cubin. In two steps: first the preprocessor with emulate.h in front, so that
// comments are gone and macros seen through; then, in that text, the words that no macro can stand for are replaced,
// every kernel gets an entry in a table for the driver, and the result is compiled. For sm_90a asm statements become
// calls of the driver, which knows PTX; for others the kernels' plain versions of them are taken (KMARK_EMULATE).
//   KMARK_STANDIN        the folder with emulate.h
//   KMARK_STANDIN_CACHE  a folder for compiled objects, by the content of everything that went into them
//   KMARK_STANDIN_FLAGS  more options for g++, for example "-O2 -g"
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "calls.h"

namespace fs = std::filesystem;
using std::string;
using std::vector;

enum { SUCCESS, OUT_OF_MEMORY, CREATION_FAILURE, INVALID_INPUT, INVALID_PROGRAM, INVALID_OPTION, COMPILATION };

struct Program {
    string source, name, log, object;
    vector<std::pair<string, string>> headers; // include name, text
};

static string env(const char* name) { return getenv(name) ? getenv(name) : ""; }

static string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

static bool write_file(const fs::path& path, const string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    return (bool)file.flush();
}

static string hash(const vector<string>& parts) {
    uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
    auto add = [&](unsigned char c) {
        a = (a ^ c) * 0x100000001b3u;
        b = (b ^ (c + (b >> 29))) * 0xbf58476d1ce4e5b9u;
    };
    for (const string& part : parts) {
        for (char c : std::to_string(part.size()) + ":" + part) add((unsigned char)c);
    }
    char text[40];
    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
    return text;
}

// Runs a command in `folder`, its messages added to `log`.
static bool run(const vector<string>& words, const fs::path& folder, string& log) {
    fs::path messages = folder / "messages";
    vector<char*> argv;
    for (const string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int status = -1;
    bool started = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    if (!started || waitpid(child, &status, 0) != child) log += "cannot run " + words[0] + "\n";
    log += read_file(messages);
    return status == 0;
}

// ---- From CUDA to C++ ----------------------------------------------------------------------------------------------

// Goes through preprocessed text word by word and writes it again with the same lines. Kernels are renamed: their names
// may be those of other functions, in the file or in libc.
class Translator {
public:
    Translator(const string& text, bool ptx) : in(text), ptx(ptx) {}

    string translate() {
        while (at < in.size()) {
            size_t start = at;
            string word = next();
            if (word == ";" || word == "{" || word == "}") {
                dynamic = false;
                statement.clear();
            } else if (!word.empty()) {
                statement.insert(word);
            }
            if (word == "[" && dynamic && dynamic_names.insert(before).second)
                aliases += "__asm__(\".globl " + before + "\\n.hidden " + before + "\\n.set " + before +
                           ", emu_dynamic_shared\");\n";
            if (word == "__shared__") {
                dynamic = statement.count("extern");
                if (!dynamic && !statement.count("static")) out += "static";
            } else if (word == "__global__") {
                kernel = statement.count("\"C\"");
            } else if (word == "__launch_bounds__") {
                string inside = parentheses();
                bounds = inside.substr(0, comma(inside));
                out += string((size_t)std::count(inside.begin(), inside.end(), '\n'), '\n');
            } else if (word == "alignas" && statement.count("__shared__")) {
                out += "__attribute__((aligned(" + parentheses() + ")))"; // g++ wants alignas before `static`
            } else if (ptx && (word == "asm" || word == "__asm__")) {
                string inside = parentheses();
                out += call(inside) + string((size_t)std::count(inside.begin(), inside.end(), '\n'), '\n');
            } else if (kernel && (word == "__attribute__" || word == "alignas")) {
                parentheses(); // stand before the kernel's name as its own do behind it
                out.append(in, start, at - start);
            } else {
                if (word == "(" && kernel) {
                    if (seen.insert(before).second) table += entry(before);
                    out.insert(out.rfind(before), "emu_kernel_");
                    kernel = false;
                    bounds.clear();
                }
                out.append(in, start, at - start);
            }
            if (!word.empty()) before = word;
        }
        return out + "\n# 1 \"kernels of the stand-in\"\n" + aliases +
            "static const char* const emu_texts[] = {" + texts + "0};\n"
            "extern \"C\" __attribute__((visibility(\"default\"))) const emu_Module* emu_module() {\n"
            "static const emu_Kernel kernels[] = {" + table + "{}};\n"
            "static const emu_Module module = {&emu_view, kernels, __bss_start, _end, "
            "emu_dynamic_shared, emu_texts};\nreturn &module; }\n";
    }

private:
    const string& in;
    bool ptx;
    size_t at = 0;
    string out, table, aliases, before, bounds, texts; // texts of asm statements, and which number each has
    std::map<string, size_t> sites;
    std::set<string> statement, seen, dynamic_names; // words since the last ; { }, kernels, dynamic shared memory
    bool kernel = false, dynamic = false;

    string entry(const string& name) const {
        string of = "emu_Entry<&emu_kernel_" + name + ">::";
        return "{\"" + name + "\", " + of + "run, " + of + "sizes, " + of + "params, " +
               (bounds.empty() ? "1024" : "(int)(" + bounds + ")") + "},\n";
    }

    static bool letter(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$'; }

    // The word at `at`, which moves behind it. Empty: white space, or a line of the preprocessor.
    string next() {
        size_t start = at;
        char c = in[at];
        if (isspace((unsigned char)c)) {
            at++;
            return "";
        }
        if (c == '#' && (at == 0 || in[at - 1] == '\n')) {
            at = std::min(in.find('\n', at), in.size());
            return "";
        }
        if (letter(c)) {
            // 1'000: inside a number the quote is no quote
            while (at < in.size() && (letter(in[at]) || (in[at] == '\'' && isdigit((unsigned char)c)))) at++;
        } else if (c == '"' || c == '\'') {
            for (at++; at < in.size() && in[at] != c && in[at] != '\n'; at++) at += in[at] == '\\';
            at++;
        } else {
            at++;
        }
        at = std::min(at, in.size());
        return in.substr(start, at - start);
    }

    // What stands in the parentheses that follow.
    string parentheses() {
        while (at < in.size() && next() != "(") {}
        size_t start = at;
        for (int depth = 1; at < in.size();) {
            string word = next();
            depth += word == "(" ? 1 : word == ")" ? -1 : 0;
            if (depth == 0) return in.substr(start, at - 1 - start);
        }
        return "";
    }

    // An asm statement from what stands in its parentheses: text : results : operands : the rest.
    string call(const string& inside) {
        vector<string> parts = split(inside, ':');
        parts.resize(4);
        string text, operands;
        for (const string& literal : split(parts[0], ' '))
            if (!literal.empty() && literal != "\"\"") text += literal + " ";
        if (text.empty()) return "(void)0"; // only tells a compiler what to keep
        for (int results = 1; results >= 0; results--) {
            for (const string& operand : split(parts[results ? 1 : 2], ',')) {
                size_t quote = operand.find('"'), end = operand.find('"', quote + 1), open = operand.find('(', end);
                if (operand.find_first_not_of(" \n") == string::npos) continue;
                if (open == string::npos || operand.find('[') < quote)
                    return "static_assert(false, \"the stand-in knows no such operand of asm\")";
                string e = operand.substr(open);
                operands += results ? "{(void*)&" + e + ", 0, sizeof" + e + "}, "
                                    : string("{0, emu_") + operand[end - 1] + e + ", 0}, ";
            }
        }
        auto site = sites.insert({text, sites.size()});
        if (site.second) texts += text + ",\n";
        return "({ const emu_Operand emu_all[] = {" + operands + "{}}; emu_view.runtime->ptx(" +
               std::to_string(site.first->second) + ", emu_all); })";
    }

    // At a character that stands in no string and no parentheses; ' ' is any white space. Lines of the preprocessor are left out.
    static vector<string> split(const string& text, char by) {
        vector<string> parts(1);
        int depth = 0;
        for (size_t i = 0; i < text.size(); i++) {
            char c = text[i];
            if (c == '#' && (i == 0 || text[i - 1] == '\n')) {
                i = std::min(text.find('\n', i), text.size()) - 1;
                continue;
            }
            if (c == '"' || c == '\'') {
                size_t start = i;
                for (i++; i < text.size() && text[i] != c; i++) i += text[i] == '\\';
                parts.back() += text.substr(start, i + 1 - start);
                continue;
            }
            if (strchr("({[", c)) depth++;
            if (strchr(")}]", c)) depth--;
            if (depth == 0 && (by == ' ' ? isspace((unsigned char)c) != 0 : c == by)) parts.emplace_back();
            else parts.back() += c == '\n' ? ' ' : c;
        }
        return parts;
    }

    static size_t comma(const string& list) {
        int depth = 0;
        for (size_t i = 0; i < list.size(); i++) {
            if (strchr("({[", list[i])) depth++;
            if (strchr(")}]", list[i])) depth--;
            if (list[i] == ',' && depth == 0) return i;
        }
        return string::npos;
    }
};

static int compile(Program& p, const vector<string>& options) {
    vector<string> defines, includes;
    bool hopper = false;
    for (size_t i = 0; i < options.size(); i++) {
        const string& o = options[i];
        auto value = [&](const char* prefix) -> string { // "-Dx", "-D x", "--define-macro=x", "--define-macro x"
            size_t size = strlen(prefix);
            if (o.compare(0, size, prefix) != 0) return "";
            if (o.size() == size) return i + 1 < options.size() ? options[++i] : "";
            return prefix[1] != '-' ? o.substr(size) : o[size] == '=' ? o.substr(size + 1) : "";
        };
        string v;
        if (!(v = value("-D")).empty() || !(v = value("--define-macro")).empty()) defines.push_back("-D" + v);
        else if (!(v = value("-I")).empty() || !(v = value("--include-path")).empty())
            includes.push_back("-I" + fs::absolute(v).string());
        else if (!(v = value("--gpu-architecture")).empty()) hopper = v == "sm_90a";
    }
    if (hopper)
        defines.insert(defines.end(), {"-D__CUDA_ARCH__=900", "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0"});
    else
        defines.push_back("-DKMARK_EMULATE");
    fs::path emulate = fs::path(env("KMARK_STANDIN")) / "emulate.h";
    string contract = read_file(emulate), flags = env("KMARK_STANDIN_FLAGS"), cache = env("KMARK_STANDIN_CACHE");
    if (contract.empty()) {
        p.log = "stand-in: KMARK_STANDIN names no folder with emulate.h\n";
        return COMPILATION;
    }
    // Files in include folders are only known after preprocessing.
    string key;
    if (includes.empty()) {
        vector<string> parts = {contract, flags, p.name, p.source};
        for (auto& h : p.headers) parts.push_back(h.first), parts.push_back(h.second);
        parts.push_back("-D");
        parts.insert(parts.end(), defines.begin(), defines.end());
        key = hash(parts);
    }
    auto cached = [&] { return !cache.empty() && !(p.object = read_file(fs::path(cache) / key)).empty(); };
    if (!key.empty() && cached()) return SUCCESS;

    string pattern = (fs::temp_directory_path() / "kmark-standin-XXXXXX").string();
    if (!mkdtemp(pattern.data())) return OUT_OF_MEMORY;
    struct Folder {
        fs::path path;
        ~Folder() {
            std::error_code ignored;
            fs::remove_all(path, ignored);
        }
    } folder{pattern};
    for (auto& h : p.headers) {
        std::error_code ignored;
        fs::create_directories((folder.path / h.first).parent_path(), ignored);
        if (!write_file(folder.path / h.first, h.second)) return OUT_OF_MEMORY;
    }
    // Errors name the program as its author did.
    write_file(folder.path / "program.cpp", "#line 1 \"" + p.name + "\"\n" + p.source);

    vector<string> command = {"env", "LC_ALL=C", "g++", "-std=c++17", "-w", "-fdiagnostics-color=never",
                              "-fmax-errors=20"};
    vector<string> first = command;
    first.insert(first.end(), {"-E", "-include", fs::absolute(emulate).string(), "-I."});
    first.insert(first.end(), defines.begin(), defines.end());
    first.insert(first.end(), includes.begin(), includes.end());
    first.insert(first.end(), {"program.cpp", "-o", "expanded.ii"});
    if (!run(first, folder.path, p.log)) return COMPILATION;
    string text = Translator(read_file(folder.path / "expanded.ii"), hopper).translate();
    write_file(folder.path / "program.ii", text);
    if (key.empty()) {
        key = hash({text, flags});
        if (cached()) return SUCCESS;
    }
    vector<string> second = command;
    // Shared memory of templates must not be merged between modules (gnu-unique). Kernels cast between types as they
    // like. Only variables without a value lie in bss, where the driver puts garbage: shared memory.
    second.insert(second.end(), {"-O1", "-shared", "-fPIC", "-pipe", "-ffp-contract=off", "-fno-strict-aliasing",
                                 "-fno-math-errno", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
                                 "-fno-gnu-unique", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables",
                                 "-fno-zero-initialized-in-bss", "-nostartfiles"});
    std::stringstream more(flags);
    for (string flag; more >> flag;) second.push_back(flag);
    second.insert(second.end(), {"program.ii", "-o", "program.so", "-nodefaultlibs", "-Wl,-z,defs", "-Wl,-z,now",
                                 "-lm", "-lc", "-lgcc"});
    if (!run(second, folder.path, p.log)) return COMPILATION;
    p.object = read_file(folder.path / "program.so");
    if (!cache.empty()) { // renamed into place: another process may be looking
        std::error_code failed;
        fs::create_directories(cache, failed);
        fs::path unfinished = fs::path(cache) / (key + "." + folder.path.filename().string());
        if (write_file(unfinished, p.object)) fs::rename(unfinished, fs::path(cache) / key, failed);
    }
    return SUCCESS;
}

// ---- The interface -------------------------------------------------------------------------------------------------

static const int ARCHS[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

#define ENTER(name) \
    if (int injected = Calls::note(name)) return injected

API(nvrtcVersion, int* major, int* minor) {
    ENTER("nvrtcVersion");
    *major = 13;
    *minor = 0;
    return SUCCESS;
}
API(nvrtcGetNumSupportedArchs, int* count) {
    ENTER("nvrtcGetNumSupportedArchs");
    *count = sizeof ARCHS / sizeof *ARCHS;
    return SUCCESS;
}
API(nvrtcGetSupportedArchs, int* archs) {
    ENTER("nvrtcGetSupportedArchs");
    memcpy(archs, ARCHS, sizeof ARCHS);
    return SUCCESS;
}
API(nvrtcCreateProgram, Program** program, const char* source, const char* name, int count, const char* const* headers,
    const char* const* names) {
    ENTER("nvrtcCreateProgram");
    if (!program || !source || count < 0) return INVALID_INPUT;
    *program = new Program{source, name ? name : "default_program", "", "", {}};
    for (int i = 0; i < count; i++) (*program)->headers.push_back({names[i], headers[i]});
    return SUCCESS;
}
API(nvrtcCompileProgram, Program* program, int count, const char* const* options) {
    ENTER("nvrtcCompileProgram");
    if (!program) return INVALID_PROGRAM;
    program->log.clear();
    program->object.clear();
    return compile(*program, vector<string>(options, options + count));
}
API(nvrtcDestroyProgram, Program** program) {
    ENTER("nvrtcDestroyProgram");
    if (!program || !*program) return INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return SUCCESS;
}
API(nvrtcGetProgramLogSize, Program* program, size_t* size) {
    ENTER("nvrtcGetProgramLogSize");
    *size = program->log.size() + 1;
    return SUCCESS;
}
API(nvrtcGetProgramLog, Program* program, char* log) {
    ENTER("nvrtcGetProgramLog");
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return SUCCESS;
}
API(nvrtcGetCUBINSize, Program* program, size_t* size) {
    ENTER("nvrtcGetCUBINSize");
    *size = program->object.size();
    return SUCCESS;
}
API(nvrtcGetCUBIN, Program* program, char* object) {
    ENTER("nvrtcGetCUBIN");
    memcpy(object, program->object.data(), program->object.size());
    return program->object.empty() ? INVALID_PROGRAM : SUCCESS;
}
// Whoever asks for PTX gets something that the driver can load just as well.
API(nvrtcGetPTXSize, Program* program, size_t* size) {
    ENTER("nvrtcGetPTXSize");
    *size = program->object.size();
    return SUCCESS;
}
API(nvrtcGetPTX, Program* program, char* object) {
    ENTER("nvrtcGetPTX");
    memcpy(object, program->object.data(), program->object.size());
    return program->object.empty() ? INVALID_PROGRAM : SUCCESS;
}
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int code) {
    static const char* const NAMES[] = {"NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY",
                                        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION",
                                        "NVRTC_ERROR_COMPILATION"};
    return code >= 0 && code <= COMPILATION ? NAMES[code] : "NVRTC_ERROR unknown";
}
