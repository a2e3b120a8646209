#include "bench/month_svg.h"

#include <stdio.h>

enum { LEFT = 56, TOP = 44, WIDTH = 720, HEIGHT = 300, RIGHT = 24, BOTTOM = 44 };

const char *const month_ways[MONTH_WAYS] = {"left alone", "merged and returned", "compacted"};
static const char *const colours[MONTH_WAYS] = {"#8c8c8c", "#d9822b", "#2463a8"};

static double x_of(size_t i) {
    return LEFT + (double)WIDTH * (double)i / MONTH_POINTS;
}

static double y_of(double share) {
    return TOP + HEIGHT * (1 - share);
}

static void line(FILE *out, const double *values, size_t count, const char *colour, double width) {
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" points=\"", colour,
            width);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s%.1f,%.1f", i ? " " : "", x_of(i), y_of(values[i]));
    }
    fprintf(out, "\"/>\n");
}

/* What is in use, as an area. */
static void area(FILE *out, const double *values, size_t count) {
    fprintf(out, "<polygon fill=\"#dce8f5\" points=\"%.1f,%.1f", x_of(0), y_of(0));
    for (size_t i = 0; i < count; i++) {
        fprintf(out, " %.1f,%.1f", x_of(i), y_of(values[i]));
    }
    fprintf(out, " %.1f,%.1f\"/>\n", x_of(count ? count - 1 : 0), y_of(0));
}

static void axes(FILE *out) {
    for (int share = 0; share <= 100; share += 20) {
        double y = y_of(share / 100.0);
        fprintf(
            out,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ccc\" "
            "stroke-width=\"0.5\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d%%</text>\n",
            LEFT, LEFT + WIDTH, y, y, LEFT - 6, y + 4, share);
    }
    for (int day = 0; day <= 30; day += 5) {
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                x_of((size_t)day * 24), TOP + HEIGHT + 16, day);
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">days</text>\n", LEFT + WIDTH / 2,
            TOP + HEIGHT + 34);
}

static void legend(FILE *out) {
    int x = LEFT;
    fprintf(out,
            "<rect x=\"%d\" y=\"14\" width=\"14\" height=\"10\" fill=\"#dce8f5\"/>\n"
            "<text x=\"%d\" y=\"23\">in use</text>\n",
            x, x + 20);
    x += 80;
    for (int way = 0; way < MONTH_WAYS; way++, x += 170) {
        fprintf(out,
                "<line x1=\"%d\" x2=\"%d\" y1=\"19\" y2=\"19\" stroke=\"%s\" "
                "stroke-width=\"2\"/>\n<text x=\"%d\" y=\"23\">held, %s</text>\n",
                x, x + 14, colours[way], x + 20, month_ways[way]);
    }
}

bool month_draw(const char *path, const month_series series[MONTH_WAYS]) {
    FILE *out = fopen(path, "w");
    if (!out) {
        return false;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
            "<title>Memory of a device over a month: in use, and held by the pool</title>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    area(out, series[MONTH_WAYS - 1].live, series[MONTH_WAYS - 1].count);
    axes(out);
    for (int way = 0; way < MONTH_WAYS; way++) {
        line(out, series[way].reserved, series[way].count, colours[way], 1.2);
    }
    legend(out);
    fprintf(out, "</svg>\n");
    bool written = !ferror(out);
    return fclose(out) == 0 && written;
}
