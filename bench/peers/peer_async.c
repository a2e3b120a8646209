/* Times the driver's stream-ordered pool alone: pairs of four sizes and the mixed pattern. Prints
 * {"peer", "figures"}; exits with 77 where there is no such pool. */
#include "bench/peers/async.h"

int main(int argc, char **argv) {
    static const struct {
        size_t size;
        const char *what;
    } cases[] = {
        {512, "alloc + free, 512 B"},     {64 << 10, "alloc + free, 64 KiB"},
        {2 << 20, "alloc + free, 2 MiB"}, {64 << 20, "alloc + free, 64 MiB"},
        {0, "mixed pattern, a pair"},
    };
    bench_allocator allocator;
    const char *why = peer_async_open(0, &allocator);
    if (why) {
        fprintf(stderr, "peer_async: skipped: %s\n", why);
        return 77;
    }
    bool ok = true;
    printf("{\"peer\": \"%s\", \"figures\": [", allocator.name);
    for (size_t i = 0; ok && i < sizeof cases / sizeof *cases; i++) {
        bench_measure ns;
        ok = cases[i].size ? bench_pairs(&allocator, 1, cases[i].size, &ns)
                           : bench_pattern(&allocator, 1, &ns);
        if (ok) {
            printf("%s\n  ", i ? "," : "");
            bench_figure(stdout, cases[i].what, "ns", ns);
            printf("}");
        }
    }
    printf("\n]}\n");
    peer_async_close(&allocator);
    return ok ? 0 : 1;
}
