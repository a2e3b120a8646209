/* cenote revoke: takes back exports, of this user's or, for root, of anybody's. */
#include "cli/cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sharing.h"

typedef struct arguments {
    bool withdraw, plain, help;
    const char *socket;
    char **what; /* of argv, moved to its front */
    int count;
} arguments;

static const char usage[] =
    "usage: cenote revoke [--withdraw] [--socket PATH] [--] NAME[@VERSION]|#ID...\n"
    "\n"
    "Takes back what processes share through a broker ('cenote serve'): nobody can open it any\n"
    "more, and those who have it open are told to close it. The memory is free again once they\n"
    "have, or have died: no process can take a mapping from another. 'cenote holders' lists\n"
    "names, versions, IDs, and who has them open. A name alone means all its versions; one that\n"
    "begins with '-' comes behind '--'.\n"
    "\n"
    "  --withdraw     let those who have it open keep it\n"
    "  --socket PATH  the broker's socket; default as for programs (docs/share.md)\n"
    "\n"
    "Exit status: 0 all was taken back, 1 something was not (a line says what), 2 the call's\n"
    "words are off.\n";

static int parse(int argc, char **argv, arguments *args) {
    args->what = argv + 1;
    for (int i = 1; i < argc; i++) {
        int status = CLI_OK;
        if (cli_end_of_options(argv[i], &args->plain)) {
            continue;
        }
        if (cli_is_operand(argv[i], args->plain)) {
            args->what[args->count++] = argv[i];
        } else if (cli_common_option(argv[i], &args->help, NULL)) {
            return CLI_OK;
        } else if (!strcmp(argv[i], "--withdraw")) {
            args->withdraw = true;
        } else if (cli_socket_option("revoke", argc, argv, &i, &args->socket, &status)) {
            if (status) {
                return status;
            }
        } else {
            return cli_stray_word("revoke", argv[i]);
        }
    }
    return args->count ? CLI_OK
                       : cli_usage_error("revoke", "needs a NAME, NAME@VERSION or #ID, as 'cenote "
                                                   "holders' prints them");
}

/* Whether an export is meant by "NAME", "NAME@VERSION" or "#ID". */
static bool meant(const cen_share_export_listing *export, const char *what) {
    char full[CEN_SHARE_NAME_MAX + 32];
    if (*what == '#') {
        snprintf(full, sizeof full, "#%" PRIx64, export->id);
        return !strcmp(full, what);
    }
    snprintf(full, sizeof full, "%s@%" PRIu64, export->name, export->version);
    return *export->name && (!strcmp(export->name, what) || !strcmp(full, what));
}

static int revoke(const arguments *args, const sharing *s, const char *what,
                  const cli_last_error *last) {
    bool found = false;
    for (size_t i = 0; i < s->list->export_count; i++) {
        const cen_share_export_listing *export = &s->list->exports[i];
        if (!meant(export, what) || (export->withdrawn && (args->withdraw || export->revoked))) {
            continue;
        }
        found = true;
        cen_status status = args->withdraw ? cen_share_withdraw(s->share, export->id)
                                           : cen_share_revoke(s->share, export->id);
        if (status && status != CEN_ERR_NOT_FOUND) { /* it ended meanwhile */
            return cli_failed("revoke", "'%s': %s", what, last->text);
        }
    }
    return found ? CLI_OK : cli_failed("revoke", "'%s': nothing of that name is shared here", what);
}

int cmd_revoke(int argc, char **argv) {
    arguments args = {0};
    int status = parse(argc, argv, &args);
    if (status) {
        return status;
    }
    if (args.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    cli_last_error last = {.command = "revoke"};
    cen_log_set(cli_keep_error, &last, CEN_LOG_WARN);
    sharing s;
    cen_status asked = sharing_read(args.socket, "cenote revoke", &s);
    if (asked) {
        status = cli_failed("revoke", "%s", *last.text ? last.text : cen_status_text(asked));
    } else if (!s.list) {
        status = cli_failed("revoke", "%s", last.text);
    }
    for (int i = 0; !asked && s.list && i < args.count; i++) {
        int one = revoke(&args, &s, args.what[i], &last);
        status = one ? one : status;
    }
    if (!asked) {
        sharing_free(&s);
    }
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    return status;
}
