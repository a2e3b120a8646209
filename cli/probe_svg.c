/* The drawing of `cenote probe --svg`: for each device latencies by size, and bandwidths by level,
 * both on scales of powers of ten. */
#include "cli/probe.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"

enum { WIDTH = 900, HEIGHT = 330, LEFT = 70, TOP = 50, BOTTOM = 60, PLOT = 340, BARS = 480 };

/* Where a number stands between two others on a logarithmic scale, 0 to 1. */
static double place(double n, double low, double high) {
    return high > low ? (log(n) - log(low)) / (log(high) - log(low)) : 0.5;
}

static void text(FILE *out, double x, double y, const char *anchor, const char *words) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    for (; *words; words++) {
        switch (*words) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*words, out);
        }
    }
    fputs("</text>\n", out);
}

static void line(FILE *out, double x1, double y1, double x2, double y2, const char *kind) {
    fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", kind, x1,
            y1, x2, y2);
}

static void draw_latencies(FILE *out, const cen_probe_device *d, double top) {
    double low = 1e300, high = 0, floor_y = top + HEIGHT - BOTTOM, tall = HEIGHT - BOTTOM - TOP;
    for (size_t i = 0; i < d->step_count; i++) {
        low = fmin(low, d->steps[i].ns);
        high = fmax(high, d->steps[i].ns);
    }
    if (d->step_count < 2) {
        text(out, LEFT, top + TOP + 20, "start", "latencies by size: not measured");
        return;
    }
    int first = (int)floor(log10(low)), last = (int)ceil(log10(high));
    last = last > first ? last : first + 1;
    low = pow(10, first);
    high = pow(10, last);
    uint64_t begin = d->steps[0].bytes, end = d->steps[d->step_count - 1].bytes;
    double from = (double)begin, to = (double)end;
    for (int power = first; power <= last; power++) {
        double n = pow(10, power), y = floor_y - tall * place(n, low, high);
        char label[32];
        snprintf(label, sizeof label, "%g ns", n);
        line(out, LEFT, y, LEFT + PLOT, y, "grid");
        text(out, LEFT - 6, y + 4, "end", label);
    }
    for (uint64_t n = begin; n <= end && n <= UINT64_MAX / 16; n *= 16) {
        double x = LEFT + PLOT * place((double)n, from, to);
        line(out, x, floor_y, x, floor_y + 5, "axis");
        text(out, x, floor_y + 18, "middle", probe_size(n));
    }
    fputs("<polyline class=\"curve\" points=\"", out);
    for (size_t i = 0; i < d->step_count; i++) {
        fprintf(out, "%.1f,%.1f ", LEFT + PLOT * place((double)d->steps[i].bytes, from, to),
                floor_y - tall * place(d->steps[i].ns, low, high));
    }
    fputs("\"/>\n", out);
    line(out, LEFT, floor_y, LEFT + PLOT, floor_y, "axis");
    text(out, LEFT, floor_y + 38, "start", "latency of dependent accesses, by size");
}

static void draw_bandwidths(FILE *out, const cen_probe_device *d, double top) {
    double low = 1e300, high = 0, y = top + TOP + 6;
    const double x = BARS + 100, wide = WIDTH - BARS - 190;
    for (size_t i = 0; i < d->level_count; i++) {
        double n = d->levels[i].bandwidth_gbps;
        low = n > 0 ? fmin(low, n) : low;
        high = fmax(high, n);
    }
    if (!(high > 0)) {
        text(out, BARS, y + 14, "start", "bandwidths: not measured");
        return;
    }
    low = pow(10, floor(log10(low))) / 10;
    for (size_t i = 0; i < d->level_count && y < top + HEIGHT - BOTTOM; i++) {
        const cen_probe_level *l = &d->levels[i];
        char label[32];
        if (!(l->bandwidth_gbps > 0)) {
            continue;
        }
        double length = wide * place(l->bandwidth_gbps, low, high);
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"14\"/>\n", x, y, length);
        snprintf(label, sizeof label, "%.4g GB/s", l->bandwidth_gbps);
        text(out, x - 6, y + 12, "end", l->level);
        text(out, x + length + 6, y + 12, "start", label);
        y += 22;
    }
    text(out, BARS + 100, top + HEIGHT - BOTTOM + 38, "start",
         "bandwidth of the fastest access (logarithmic)");
}

static void draw(FILE *out, const cen_probe *probe) {
    size_t count = cen_probe_device_count(probe);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %zu\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#24292f\">\n"
            "<style>.grid{stroke:#d0d7de}.axis{stroke:#57606a}"
            ".curve{fill:none;stroke:#0969da;stroke-width:2}rect{fill:#0969da}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" style=\"fill:#fff\"/>\n",
            WIDTH, count * HEIGHT);
    for (size_t i = 0; i < count; i++) {
        const cen_probe_device *d = cen_probe_get_device(probe, i);
        double top = (double)(i * HEIGHT);
        text(out, LEFT, top + 30, "start", *d->name ? d->name : "no name");
        draw_latencies(out, d, top);
        draw_bandwidths(out, d, top);
    }
    fputs("</svg>\n", out);
}

int probe_write_svg(const cen_probe *probe, const char *path) {
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    if (out) {
        draw(out, probe);
    }
    int status = !out || fclose(out) ? cli_failed("probe", "%s: %s", path, strerror(errno))
                                     : cli_write_file("probe", path, bytes, size);
    free(bytes);
    return status;
}
