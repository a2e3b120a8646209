/* One copy of a block for all processes of a machine: one process publishes it, others read it
 * where it is. A broker has to run (`cenote serve`), and both sides find it by themselves.
 *
 * usage: share publish NAME [DEVICE]   until its input ends, or it is killed
 *        share read NAME [DEVICE]      before or after that: it waits 10 s for the name
 *
 * DEVICE is host:0 if not given; cuda:0 is a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/cenote.h"

#define BLOCK ((size_t)8 << 20)

static void check(cen_status status, const char *what) {
    if (status) { /* the log, which goes to standard error, has said why */
        fprintf(stderr, "share: %s: %s\n", what, cen_status_text(status));
        exit(1);
    }
}

static void publish(cen_share *share, cen_device *device, cen_stream stream, const char *name) {
    cen_share_set *set;
    cen_addr block;
    cen_share_export_info info;
    check(cen_share_set_create(share, device, BLOCK, 0, &set), "set");
    check(cen_share_alloc(set, BLOCK, &block), "alloc");
    check(cen_fill_async(device, block, 1, BLOCK, stream), "fill");

    /* Published at once: readers' streams wait for the fill, this process does not. */
    const cen_share_item item = {.name = "ones", .addr = block, .bytes = BLOCK};
    const cen_share_export_options options = {
        .size = sizeof options, .name = name, .stream = stream};
    check(cen_share_export(share, &item, 1, &options, &info), "export");
    printf("%s version %llu is shared\n", name, (unsigned long long)info.version);
    fflush(stdout);
    while (getchar() != EOF) {
    }

    /* Readers keep what they have open; it goes with the last of them. */
    check(cen_share_free(set, block, stream), "free");
    check(cen_share_set_destroy(set), "destroy");
}

static void read_it(cen_share *share, cen_device *device, cen_stream stream, const char *name) {
    cen_share_view *view;
    cen_share_item item;
    check(cen_share_open(share, device, name, 0, 10000, &view), "open");
    check(cen_share_view_find(view, "ones", &item), "find");
    check(cen_share_wait(view, stream), "wait"); /* behind the publisher's fill */

    uint8_t *bytes = malloc(item.bytes);
    check(bytes ? CEN_OK : CEN_ERR_HOST_MEMORY, "malloc");
    check(cen_copy_async(device, (cen_addr)bytes, item.addr, item.bytes, stream), "copy");
    check(cen_share_close(view, stream), "close"); /* once the copy is done; does not wait for it */
    check(cen_stream_sync(device, stream), "sync");
    uint64_t sum = 0;
    for (uint64_t i = 0; i < item.bytes; i++) {
        sum += bytes[i];
    }
    printf("%s: %llu bytes, their sum is %llu\n", name, (unsigned long long)item.bytes,
           (unsigned long long)sum);
    free(bytes);
}

int main(int argc, char **argv) {
    bool publishes = argc > 2 && !strcmp(argv[1], "publish");
    if ((argc != 3 && argc != 4) || (!publishes && strcmp(argv[1], "read"))) {
        fprintf(stderr, "usage: share publish|read NAME [DEVICE]\n");
        return 2;
    }
    cen_share *share;
    cen_device *device;
    cen_stream stream;
    check(cen_share_connect(NULL, &share), "connect");
    check(cen_device_open(argc > 3 ? argv[3] : "host:0", &device), "device");
    check(cen_stream_create(device, 0, &stream), "stream");
    (publishes ? publish : read_it)(share, device, stream, argv[2]);
    cen_share_disconnect(share);
    check(cen_stream_destroy(device, stream), "stream");
    cen_device_close(device);
    return 0;
}
