/* cenote holders: who holds what of each GPU. */
#include "cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/holders.h"

typedef struct arguments {
    bool json, help;
    int device;         /* -1: all */
    const char *socket; /* the broker's; NULL: the usual one */
} arguments;

static const char usage[] =
    "usage: cenote holders [--device N] [--socket PATH] [--json]\n"
    "\n"
    "Says who holds the memory of each GPU: what the driver counts for each process, whether\n"
    "that process is still there, and, where it runs under 'cenote run' or with cenote's\n"
    "allocator, whose doing the bytes are. That needs a GPU's driver (NVML). Then what\n"
    "processes share through a broker ('cenote serve'), if one listens: every set of pages,\n"
    "whose it is, and who has it open.\n"
    "\n"
    "  --device N     only the GPU of that number, as nvidia-smi counts\n"
    "  --socket PATH  the broker's socket; default as for programs (docs/share.md)\n"
    "  --json         one JSON object; its keys are in docs/holders.md\n";

static int parse_device(const char *value, int *device) {
    char *end = NULL;
    long number = *value >= '0' && *value <= '9' ? strtol(value, &end, 10) : -1;
    if (number < 0 || *end || number > 4095) {
        return cli_usage_error("holders", "--device needs the number of a GPU, such as 0");
    }
    *device = (int)number;
    return CLI_OK;
}

static int parse(int argc, char **argv, arguments *args) {
    for (int i = 1; i < argc; i++) {
        const char *value;
        int status = CLI_OK;
        if (cli_common_option(argv[i], &args->help, &args->json)) {
            continue;
        }
        if ((value = cli_option_value("--device", argc, argv, &i))) {
            status = parse_device(value, &args->device);
        } else if (!cli_socket_option("holders", argc, argv, &i, &args->socket, &status)) {
            status = cli_stray_word("holders", argv[i]);
        }
        if (status) {
            return status;
        }
    }
    return CLI_OK;
}

static const cen_holder_device *find(const cen_holders *holders, int index) {
    for (size_t i = 0; i < cen_holders_device_count(holders); i++) {
        const cen_holder_device *device = cen_holders_device(holders, i);
        if (device->index == index) {
            return device;
        }
    }
    return NULL;
}

/* holders: NULL where there is no GPU's driver. */
static int print(const arguments *args, const cen_holders *holders, const sharing *shared) {
    const cen_holder_device *only = NULL;
    if (args->device >= 0 && !(only = find(holders, args->device))) {
        return cli_failed("holders",
                          "there is no GPU %d that answers; without --device all are "
                          "listed",
                          args->device);
    }
    if (args->json) {
        return holders_print_json(holders, only, shared)
                   ? CLI_OK
                   : cli_failed("holders", "%s", cen_status_text(CEN_ERR_HOST_MEMORY));
    }
    if (holders) {
        holders_print(holders, only);
    }
    if (shared->list) {
        sharing_print(shared, only ? only->uuid : NULL);
    }
    return CLI_OK;
}

/* Without a GPU's driver there is still what a broker tells; `last` is why there is none. */
static int look(const arguments *args, cli_last_error *last) {
    cen_holders *holders = NULL;
    sharing shared = {0};
    cen_status looked = cen_holders_read(&holders);
    char why[sizeof last->text];
    memcpy(why, last->text, sizeof why);
    *last->text = '\0';
    cen_status asked = sharing_read(args->socket, "cenote holders", &shared);
    const char *named = getenv("CENOTE_BROKER");
    bool missed = !asked && !shared.list && named && *named; /* who names a broker expects one */
    int status;
    if (asked) {
        status = cli_failed("holders", "%s", *last->text ? last->text : cen_status_text(asked));
    } else if (looked && (looked != CEN_ERR_NO_DEVICE || args->device >= 0 || !shared.list)) {
        status = missed ? cli_failed("holders", "%s; %s", why, last->text)
                        : cli_failed("holders", "%s", why);
    } else {
        if (!looked && *why) { /* a ledger that could not be read: the rest is told all the same */
            fprintf(stderr, "cenote holders: warning: %s\n", why);
        }
        if (missed) {
            fprintf(stderr, "cenote holders: warning: %s\n", last->text);
        }
        status = print(args, holders, &shared);
    }
    sharing_free(&shared);
    cen_holders_free(holders);
    return status;
}

int cmd_holders(int argc, char **argv) {
    arguments args = {.device = -1};
    int status = parse(argc, argv, &args);
    if (status) {
        return status;
    }
    if (args.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    cli_last_error last = {.command = "holders"};
    cen_log_set(cli_keep_error, &last, CEN_LOG_WARN);
    status = look(&args, &last);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    return status;
}
