/* Where a report goes, and what of it. */
#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/profile.h"

static const char command[] = "profile";

bool profile_takes(const profile_options *options, const cen_profile_row *row) {
    regex_t wanted;
    if (!options->csv || !options->kernel ||
        regcomp(&wanted, options->kernel, REG_EXTENDED | REG_NOSUB)) {
        return true; /* ncu chose, or nobody did; what is no pattern was refused before */
    }
    bool takes = !regexec(&wanted, row->kernel, 0, NULL, 0);
    regfree(&wanted);
    return takes;
}

bool profile_measured(const profile_options *options, const cen_profile_row *row,
                      cen_profile_measured *measured) {
    const cen_probe_device *device = cen_probe_get_device(options->machine.probe, row->device);
    /* The last of a probe's is the host. */
    bool gpu = device && device->multiprocessors;
    return gpu && !cen_profile_measure(row, device, measured) &&
           (measured->dram > 0 || measured->l2 > 0 || measured->fp32 > 0);
}

profile_mean profile_mean_of(const cen_sample_device *device, cen_sample_share share, size_t from,
                             size_t to) {
    double sum = 0, length = 0, most = -1;
    for (size_t i = from; i < to; i++) {
        const cen_sample_moment *m = &device->moments[i];
        if (m->shares[share] >= 0) {
            sum += m->shares[share] * m->length;
            length += m->length;
            most = m->shares[share] > most ? m->shares[share] : most;
        }
    }
    return (profile_mean){.mean = length > 0 ? sum / length : -1, .most = most};
}

int profile_try_out(const profile_options *options) {
    FILE *out = options->out ? fopen(options->out, "ae") : NULL;
    if (options->out && !out) {
        return cli_failed(command, "%s: %s", options->out, strerror(errno));
    }
    if (out) {
        fclose(out);
    }
    return CLI_OK;
}

static int write_report(const profile_options *options, const char *text, size_t size) {
    if (options->out) {
        return cli_write_file(command, options->out, text, size);
    }
    FILE *out = options->csv || options->json ? stdout : stderr;
    fwrite(text, 1, size, out); /* main looks whether standard output took it */
    return CLI_OK;
}

int profile_report(const profile_options *options, const profile_result *result) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        return cli_failed(command, "%s", strerror(errno));
    }
    int status = CLI_OK;
    if (options->json) {
        status = profile_print_json(out, options, result);
    } else if (result->profile) {
        profile_print(out, options, result->profile);
    } else {
        profile_print_samples(out, result);
    }
    if (fclose(out)) {
        status = cli_failed(command, "%s", strerror(errno));
    }
    status = status ? status : write_report(options, text, size);
    free(text);
    return status;
}
