/* A device's replay as text and as JSON. */
#ifndef CENOTE_CLI_REPLAY_REPORT_H
#define CENOTE_CLI_REPLAY_REPORT_H

#include <jansson.h>

#include "cli/replay.h"

#define REPLAY_CURVE_POINTS 5
extern const uint64_t replay_curve_mib[REPLAY_CURVE_POINTS];

typedef struct replay_outcome {
    const char *name; /* of the file */
    const cen_snapshot *snapshot;
    const cen_snapshot_device *d;
    uint64_t cap_bytes; /* 0: none was given */
    bool with_curve;
    replay_recorded recorded;
    replay_result own;    /* without a limit */
    replay_result capped; /* with cap_bytes */
    replay_result curve[REPLAY_CURVE_POINTS];
} replay_outcome;

void replay_print(const replay_outcome *o);
json_t *replay_json(const replay_outcome *o); /* NULL: no memory */

#endif
