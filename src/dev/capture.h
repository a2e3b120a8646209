/* Capturing a stream into a graph and launching it, on any backend: for tests of what allocators do
 * during a capture. Frameworks capture with their own calls.
 *
 * While a stream is being captured, its operations are recorded, not run; a stream that waits for
 * an event recorded in the capture joins it; querying or waiting for anything on the device breaks
 * it, but ceni_dev_event_peek. */
#ifndef CENI_DEV_CAPTURE_H
#define CENI_DEV_CAPTURE_H

#include "dev/dev.h"

/* CEN_ERR_UNSUPPORTED where the backend cannot. */
cen_status ceni_capture_begin(cen_device *device, cen_stream stream);
/* By the thread that began it. CEN_ERR_CAPTURE, and no graph, when something broke it. */
cen_status ceni_capture_end(cen_device *device, cen_stream stream, ceni_graph **graph);
cen_status ceni_graph_launch(cen_device *device, ceni_graph *graph, cen_stream stream);
/* Its launches have completed. NULL is ignored. */
void ceni_graph_destroy(cen_device *device, ceni_graph *graph);

#endif
