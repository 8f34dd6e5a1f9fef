// What both stand-in libraries do at every call: write it to the log, and fail where a test asks for it.
//   KMARK_STANDIN_LOG   a file; every call appends a line that starts with its name. Of a query that is repeated, only
//                       the first of a series is written, for the host may poll
//   KMARK_STANDIN_FAIL  name:nth=code, separated by commas: the nth call of `name` (from 1) returns `code`
// The environment is read once, at the first call. -DSTANDIN_WITHOUT_<symbol> leaves a symbol out of a library.
#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

// API(name) is `hidden` if STANDIN_WITHOUT_name is defined (as 1, which -D does), otherwise `default`.
#define STANDIN_COMMA_1 ,
#define STANDIN_PICK(unused, second, ...) second
#define STANDIN_CHOOSE(...) STANDIN_PICK(__VA_ARGS__, )
#define STANDIN_VISIBILITY2(value) STANDIN_CHOOSE(STANDIN_COMMA_##value "hidden", "default")
#define STANDIN_VISIBILITY(value) STANDIN_VISIBILITY2(value)
#define API(name, ...) \
    extern "C" __attribute__((visibility(STANDIN_VISIBILITY(STANDIN_WITHOUT_##name)))) int name(__VA_ARGS__)

class Calls {
public:
    // Writes the call down; a code other than 0 is to be returned at once.
    static int note(const char* name, const std::string& detail = "") {
        static Calls& calls = *new Calls;
        std::lock_guard<std::mutex> hold(calls.lock);
        int code = 0;
        auto faults = calls.faults.find(name);
        if (faults != calls.faults.end()) {
            auto at = faults->second.find(++calls.counts[name]);
            if (at != faults->second.end()) code = at->second;
        }
        if (calls.log < 0) return code;
        size_t size = strlen(name);
        bool query = size > 5 && strcmp(name + size - 5, "Query") == 0;
        if (query && code == 0 && calls.last == name) return 0;
        calls.last = name;
        std::string line = name + (detail.empty() ? "" : " " + detail);
        if (code != 0) line += " injected=" + std::to_string(code);
        line += '\n';
        if (write(calls.log, line.data(), line.size()) < 0) calls.log = -1;
        return code;
    }

private:
    std::mutex lock;
    int log = -1;
    std::string last;
    std::map<std::string, std::map<int, int>> faults;
    std::map<std::string, int> counts;

    Calls() {
        if (const char* path = getenv("KMARK_STANDIN_LOG"))
            log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        const char* text = getenv("KMARK_STANDIN_FAIL");
        std::string all = text ? text : "";
        for (size_t at = 0; at < all.size();) {
            size_t end = std::min(all.find(',', at), all.size());
            std::string one = all.substr(at, end - at);
            size_t colon = one.find(':'), equals = one.find('=');
            if (colon != std::string::npos && equals != std::string::npos)
                faults[one.substr(0, colon)][atoi(one.c_str() + colon + 1)] = atoi(one.c_str() + equals + 1);
            at = end + 1;
        }
    }
};
