/* What the files of `cenote profile` share. */
#ifndef CENOTE_CLI_PROFILE_H
#define CENOTE_CLI_PROFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cenote/profile.h"
#include "cli/child.h"
#include "cli/machine.h"

/* The program ran to its end and succeeded, and no profile came of it. */
enum { PROFILE_NONE = 125 };

typedef struct profile_options {
    bool help, json, sample, print_command;
    const char *csv, *out, *ncu, *kernel;
    const char *record;  /* a file for the program's exit status: what ncu runs is us */
    uint64_t top;        /* kernels to print; 0: as many as is usual */
    uint64_t launches;   /* the most to profile; 0: all */
    cli_machine machine; /* measured ceilings */
    char **command;      /* ends with NULL */
} profile_options;

/* A folder for one run. */
typedef struct profile_folder {
    char path[CLI_PATH / 2];
} profile_folder;
int profile_folder_make(profile_folder *folder);

/* ---- ncu (profile_ncu.c) ---- */

/* Words of a command line, ending with NULL; `words` is freed by the caller, not what it names. */
typedef struct profile_words {
    char **words;
    size_t count;
} profile_words;

/* Finds ncu: *found says whether there is one, else `why` why not. Returns an exit status: one that
 * was named and is none is a failure. */
int profile_find_ncu(const profile_options *options, const profile_folder *folder,
                     char path[CLI_PATH], bool *found, char why[256]);
/* The metrics to ask that ncu for, for the caller to free(); NULL: failed, said why. */
char *profile_metrics(const char *ncu, const profile_folder *folder);
/* The command line that records `program` (ends with NULL) into `file`. False: no memory. */
bool profile_ncu_words(const profile_options *options, const char *ncu, const char *metrics,
                       const char *file, char *const *program, profile_words *words);

/* ---- running (profile_run.c) ---- */

int profile_run(const profile_options *options);
int profile_print_command(const profile_options *options);
/* As ncu's child: runs the program, and writes its exit status into a file. */
int profile_record(const profile_options *options);

/* ---- reports (profile_report.c, profile_print.c, profile_json.c) ---- */

/* One or the other; `why`: why a run was sampled. */
typedef struct profile_result {
    const cen_profile *profile;
    const cen_sampler *sampler;
    const char *why;
} profile_result;

/* Prints it where the options say: exit status. */
int profile_report(const profile_options *options, const profile_result *result);
/* Whether the file of -o can be written: exit status. */
int profile_try_out(const profile_options *options);
/* False: a row that --kernel leaves out, which only a recording's are asked for. */
bool profile_takes(const profile_options *options, const cen_profile_row *row);
/* What a probe measured of the row's device; false: nothing. */
bool profile_measured(const profile_options *options, const cen_profile_row *row,
                      cen_profile_measured *measured);

void profile_print(FILE *out, const profile_options *options, const cen_profile *profile);
void profile_print_samples(FILE *out, const profile_result *result);
/* Mean and highest share of a device over its moments [from, to); below 0: it tells of none. */
typedef struct profile_mean {
    double mean, most;
} profile_mean;
profile_mean profile_mean_of(const cen_sample_device *device, cen_sample_share share, size_t from,
                             size_t to);
/* The exit status. */
int profile_print_json(FILE *out, const profile_options *options, const profile_result *result);

#endif
