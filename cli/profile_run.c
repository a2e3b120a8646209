/* A program under ncu, or beside a sampler.
 *
 * What ncu runs is this command once more, which runs the program and notes its exit status: ncu's
 * own says other things, too. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/profile.h"

static const char command[] = "profile";

int profile_folder_make(profile_folder *folder) {
    const char *temp = getenv("TMPDIR");
    temp = temp && *temp ? temp : "/tmp";
    int length = snprintf(folder->path, sizeof folder->path, "%s/cenote-profile-XXXXXX", temp);
    if (strchr(temp, '%') || length >= (int)sizeof folder->path) {
        return cli_failed(command, "TMPDIR: '%s' is too long, or has a '%%', which ncu replaces",
                          temp);
    }
    return mkdtemp(folder->path) ? CLI_OK : cli_failed(command, "%s: %s", temp, strerror(errno));
}

/* ---- the program, as ncu's child ---- */

static const char began[] = "began\n";

static bool note(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool note(const char *file, const char *format, ...) {
    FILE *to = fopen(file, "ae");
    va_list args;
    va_start(args, format);
    bool written = to && vfprintf(to, format, args) > 0;
    va_end(args);
    return to && !fclose(to) && written;
}

typedef struct recorded {
    const char *program;
    char **words;
} recorded;

static int start_program(void *arg) {
    const recorded *r = arg;
    return cli_exec(command, r->program, r->words);
}

int profile_record(const profile_options *options) {
    char program[CLI_PATH];
    int status = cli_find_program(command, options->command[0], program);
    if (status) {
        return status;
    }
    recorded r = {program, options->command};
    const cli_child child = {.start = start_program, .arg = &r};
    (void)note(options->record, "%s", began); /* whoever reads it sees that it is not there */
    int failed = cli_child_run(command, &child, &status);
    if (!failed) {
        (void)note(options->record, "%d\n", status);
    }
    return failed ? failed : status;
}

/* ---- a run ---- */

typedef struct run {
    const profile_options *options;
    profile_folder folder;
    char program[CLI_PATH], ncu[CLI_PATH];
    char csv[CLI_PATH], noted[CLI_PATH]; /* what ncu and its child write */
    char *metrics;
    profile_words words;  /* of ncu */
    cen_sampler *sampler; /* NULL: none yet */
    bool refused;         /* ncu may not count */
    char why[256];        /* why ncu does not */
    char no_sampler[256]; /* why no sampler does */
} run;

static bool open_sampler(run *r) {
    if (cen_sampler_open(&r->sampler)) {
        snprintf(r->no_sampler, sizeof r->no_sampler, "%s", cli_reason(cen_log_last_error()));
    }
    return r->sampler;
}

static void sample(void *arg) {
    run *r = arg;
    (void)cen_sampler_take(r->sampler); /* a device that fails keeps what it told before */
}

/* ncu says at the first kernel that it may not count. The program goes on: from then on it is
 * sampled, which would be in ncu's way if that counted. */
static void look_at_ncu(void *arg) {
    run *r = arg;
    static char head[1 << 16];
    if (!r->refused) {
        FILE *log = fopen(r->csv, "re");
        size_t got = log ? fread(head, 1, sizeof head, log) : 0;
        if (log) {
            fclose(log);
        }
        r->refused = memmem(head, got, "ERR_NVGPUCTRPERM", strlen("ERR_NVGPUCTRPERM"));
        if (r->refused) {
            (void)open_sampler(r); /* r->no_sampler keeps why not */
        }
    }
    if (r->sampler) {
        sample(r);
    }
}

static int start_ncu(void *arg) {
    const run *r = arg;
    return cli_exec(command, r->ncu, r->words.words);
}

/* Whether the folder has room is told before the program runs, not after. */
static int try_room(const run *r) {
    enum { ROOM = 1 << 20 };
    int fd = open(r->csv, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, ROOM);
    if (fd >= 0) {
        error = ftruncate(fd, 0) && !error ? errno : error;
        close(fd);
    }
    return error ? cli_failed(command, "%s: %s", r->folder.path, strerror(error)) : CLI_OK;
}

/* Our own command line, for ncu to run. */
static char **own_words(const run *r, char self[CLI_PATH]) {
    ssize_t length = readlink("/proc/self/exe", self, CLI_PATH - 1);
    size_t count = 0;
    while (r->options->command[count]) {
        count++;
    }
    char **words = length > 0 ? calloc(count + 6, sizeof *words) : NULL;
    if (!words) {
        (void)cli_failed(command, "/proc/self/exe: %s", strerror(errno));
        return NULL;
    }
    self[length] = '\0';
    const char *const own[] = {self, command, "--record", r->noted, "--"};
    memcpy(words, own, sizeof own);
    memcpy(words + 5, r->options->command, count * sizeof *words);
    return words;
}

static int make_words(run *r) {
    static char self[CLI_PATH];
    r->metrics = profile_metrics(r->ncu, &r->folder);
    char **own = r->metrics ? own_words(r, self) : NULL;
    bool made = own && profile_ncu_words(r->options, r->ncu, r->metrics, r->csv, own, &r->words);
    free(own);
    return made ? CLI_OK : CLI_FAILED;
}

/* ---- how it ended ---- */

typedef enum ending { NOT_BEGUN, UNKNOWN, KNOWN } ending;

static ending read_ending(const run *r, int *status) {
    char text[64] = "";
    FILE *from = fopen(r->noted, "re");
    if (from) {
        text[fread(text, 1, sizeof text - 1, from)] = '\0';
        fclose(from);
    }
    if (strncmp(text, began, strlen(began))) {
        return NOT_BEGUN;
    }
    char *end;
    long noted = strtol(text + strlen(began), &end, 10);
    if (end == text + strlen(began) || *end != '\n' || noted < 0 || noted > 255) {
        return UNKNOWN;
    }
    *status = (int)noted;
    return KNOWN;
}

/* A failure of ours shows in the exit status where the program's does not. */
static int none(int program) {
    return program ? program : PROFILE_NONE;
}

static int tell_samples(const run *r, int program) {
    const cen_sample_device *first = cen_sampler_get(r->sampler, 0);
    if (!first || !first->count) {
        (void)cli_failed(command, "no profile: %s, and no device gave a sample in the run's time",
                         r->why);
        return none(program);
    }
    const profile_result result = {.sampler = r->sampler, .why = r->why};
    int status = profile_report(r->options, &result);
    return status ? none(program) : program;
}

/* Without what the recording is called: its folder is gone when this is read. */
static const char *reason_of(const run *r, const char *message) {
    size_t length = strlen(r->csv);
    bool named = !strncmp(message, r->csv, length) && !strncmp(message + length, ": ", 2);
    return named ? message + length + 2 : message;
}

static int tell_refused(run *r, int program) {
    snprintf(r->why, sizeof r->why, "ncu may not count (ERR_NVGPUCTRPERM)");
    if (r->sampler) {
        return tell_samples(r, program);
    }
    (void)cli_failed(command, "no profile: %s, and devices cannot be sampled: %s", r->why,
                     *r->no_sampler ? r->no_sampler
                                    : "the run was over before; --sample begins at once");
    return none(program);
}

static int tell_ncu(run *r, int ncu) {
    cen_profile *profile = NULL;
    int program = 0;
    ending end = read_ending(r, &program);
    cen_status read = cen_profile_read(r->csv, &profile);
    char why[512] = "";
    snprintf(why, sizeof why, "%s", read ? reason_of(r, cen_log_last_error()) : "");
    if (end != KNOWN) {
        (void)cli_failed(command, "ncu ended with exit status %d, and the program%s%s%s", ncu,
                         end == NOT_BEGUN ? " was not begun" : "'s own is not known",
                         read ? "; what ncu recorded: " : "", why);
    }
    if (end == NOT_BEGUN) {
        cen_profile_free(profile);
        return CLI_FAILED;
    }
    if (read == CEN_ERR_PERMISSION) {
        return tell_refused(r, program);
    }
    if (read) {
        if (end == KNOWN) {
            (void)cli_failed(command, "no profile: what ncu recorded: %s", why);
        }
        return none(program);
    }
    const profile_result result = {.profile = profile};
    int status = profile_report(r->options, &result);
    cen_profile_free(profile);
    return status || end != KNOWN ? none(program) : program;
}

static int run_ncu(run *r) {
    snprintf(r->csv, sizeof r->csv, "%s/kernels.csv", r->folder.path);
    snprintf(r->noted, sizeof r->noted, "%s/status", r->folder.path);
    int ncu = 0, status = try_room(r);
    status = status ? status : make_words(r);
    if (status) {
        return status;
    }
    const cli_child child = {.start = start_ncu, .look = look_at_ncu, .arg = r};
    status = cli_child_run(command, &child, &ncu);
    return status ? status : tell_ncu(r, ncu);
}

static int start_sampled(void *arg) {
    const run *r = arg;
    return cli_exec(command, r->program, r->options->command);
}

static int run_sampled(run *r) {
    int program = 0;
    if (!open_sampler(r)) {
        return cli_failed(command, "no profile: %s%sand devices cannot be sampled: %s", r->why,
                          *r->why ? ", " : "", r->no_sampler);
    }
    const cli_child child = {.start = start_sampled, .look = sample, .arg = r};
    int status = cli_child_run(command, &child, &program);
    return status ? status : tell_samples(r, program);
}

static int run_either(run *r) {
    bool found = false;
    int status = CLI_OK;
    if (r->options->sample) {
        snprintf(r->why, sizeof r->why, "--sample was given");
    } else {
        status = profile_find_ncu(r->options, &r->folder, r->ncu, &found, r->why);
    }
    if (status) {
        return status;
    }
    return found ? run_ncu(r) : run_sampled(r);
}

int profile_run(const profile_options *options) {
    run *r = calloc(1, sizeof *r);
    if (!r) {
        return cli_failed(command, "%s", strerror(errno));
    }
    r->options = options;
    int status = cli_find_program(command, options->command[0], r->program);
    status = status ? status : profile_try_out(options);
    status = status ? status : profile_folder_make(&r->folder);
    if (!status) {
        status = run_either(r);
        cli_remove_folder(r->folder.path);
    }
    cen_sampler_close(r->sampler);
    free(r->words.words);
    free(r->metrics);
    free(r);
    return status;
}

/* ---- the command line alone ---- */

static void print_word(const char *word) {
    if (*word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789_-+=:,./@%")]) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word; word++) {
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, stdout);
    }
    putchar('\'');
}

static int print_words(const profile_options *options, const profile_folder *folder) {
    char ncu[CLI_PATH], why[256];
    bool found = false;
    int status = profile_find_ncu(options, folder, ncu, &found, why);
    if (status) {
        return status;
    }
    char *metrics = NULL;
    if (found) {
        metrics = profile_metrics(ncu, folder);
    } else if (cen_profile_metrics(NULL, &metrics)) {
        (void)cli_failed(command, "%s", cli_reason(cen_log_last_error()));
    }
    profile_words words = {0};
    if (!metrics || !profile_ncu_words(options, found ? ncu : "ncu", metrics, "kernels.csv",
                                       options->command, &words)) {
        free(metrics);
        return CLI_FAILED;
    }
    for (size_t i = 0; i < words.count; i++) {
        fputs(i ? " " : "", stdout);
        print_word(words.words[i]);
    }
    putchar('\n');
    free(words.words);
    free(metrics);
    return CLI_OK;
}

int profile_print_command(const profile_options *options) {
    profile_folder folder;
    int status = profile_folder_make(&folder);
    if (!status) {
        status = print_words(options, &folder);
        cli_remove_folder(folder.path);
    }
    return status;
}
