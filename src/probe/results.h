/* The results of a probe in memory, and how the file is taken apart. */
#ifndef CENI_RESULTS_H
#define CENI_RESULTS_H

#include "cenote/probe.h"

struct cen_probe {
    cen_probe_device *devices;
    size_t device_count;
    char date[16]; /* "2026-11-29"; "" if the file does not tell */
    bool quick;    /* as cen_probe_options */
};

/* How many of each a file may have: far more than any machine's. */
enum { CENI_RESULTS_DEVICES = 1024, CENI_RESULTS_ROWS = 512, CENI_MULTIPROCESSORS = 4096 };

/* Larger files are refused. */
#define CENI_RESULTS_BYTES ((size_t)16 << 20)

#endif
