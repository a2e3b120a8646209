/* What `cenote run` says, beside the output of the program that it runs. */
#include "cli/run.h"

#include <stdarg.h>
#include <string.h>

#include "cli/cmd.h"

void run_say(const char *format, ...) {
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    cli_one_line(line);
    fprintf(stderr, "cenote: %s\n", line);
}

void run_say_text(const char *text) {
    while (*text) {
        size_t length = strcspn(text, "\n");
        run_say("%.*s", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

const char *run_program(char text[RUN_PROGRAM], const cen_ledger_view *view) {
    const char *program = cen_ledger_view_info(view)->program;
    if (snprintf(text, RUN_PROGRAM, "%s", program) >= RUN_PROGRAM) {
        size_t keep = RUN_PROGRAM - sizeof "...";
        while (keep && ((unsigned char)program[keep] & 0xc0) == 0x80) { /* whole characters */
            keep--;
        }
        snprintf(text + keep, RUN_PROGRAM - keep, "...");
    }
    return text;
}

/* The innermost frame that a person wrote: one with a file and a line, if there is any. */
void run_where(cen_ledger_view *view, uint32_t stack, char *text, size_t size) {
    size_t count = 0;
    const cen_frame *frames = cen_ledger_view_stack(view, stack, &count);
    const cen_frame *best = count ? frames : NULL;
    for (size_t i = count; frames && i-- > 0;) {
        best = frames[i].line && frames[i].file && *frames[i].file ? &frames[i] : best;
    }
    if (!best) {
        snprintf(text, size, "an unknown place");
        return;
    }
    const char *slash = best->file ? strrchr(best->file, '/') : NULL;
    const char *file = slash ? slash + 1 : best->file ? best->file : "?";
    if (best->line) {
        snprintf(text, size, "%s (%s:%u)", best->function ? best->function : "?", file, best->line);
    } else {
        snprintf(text, size, "%s (%s)", best->function ? best->function : "?", file);
    }
}
