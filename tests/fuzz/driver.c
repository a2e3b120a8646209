/* Runs a fuzz target without a fuzzer: over each file of the folders named, then over small
 * mutations of those files for some seconds (FUZZ_DRIVER_SECONDS, 3). The mutations come from a
 * fixed seed. Each input is a block of exactly its size, so that a sanitizer sees the first byte
 * read past its end. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INPUTS = 4096, MAX_SIZE = 1 << 20 };

static struct {
    uint8_t *data;
    size_t size;
} inputs[MAX_INPUTS];
static size_t input_count;

static void add_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (!file || fstat(fileno(file), &status) || status.st_size > MAX_SIZE ||
        input_count == MAX_INPUTS) {
        fprintf(stderr, "%s: cannot be read, or too large\n", path);
        exit(1);
    }
    size_t size = (size_t)status.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    inputs[input_count].data = data;
    inputs[input_count++].size = size;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In order of name, so that every run is the same. A folder that is not there is empty. */
static void add_folder(const char *path) {
    static char *names[MAX_INPUTS];
    size_t count = 0;
    DIR *folder = opendir(path);
    if (!folder) {
        return;
    }
    for (struct dirent *entry; count < MAX_INPUTS && (entry = readdir(folder));) {
        if (entry->d_name[0] != '.') {
            char full[4096];
            snprintf(full, sizeof full, "%s/%s", path, entry->d_name);
            names[count++] = strdup(full);
        }
    }
    closedir(folder);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        add_file(names[i]);
        free(names[i]);
    }
}

static uint64_t next_random(void) {
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void run(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) {
        exit(1);
    }
    if (size) {
        memcpy(exact, data, size);
    }
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* One input with up to four bytes changed, a run doubled or taken out, or its end cut off. */
static void run_mutation(void) {
    static uint8_t buffer[2 * MAX_SIZE];
    size_t pick = next_random() % input_count, size = inputs[pick].size;
    memcpy(buffer, inputs[pick].data, size);
    for (uint64_t changes = 1 + next_random() % 4; size && changes; changes--) {
        size_t at = next_random() % size;
        size_t length = 1 + next_random() % (size - at < 64 ? size - at : 64);
        switch (next_random() % 8) {
        case 0:
            size = at;
            break;
        case 1:
            memmove(buffer + at, buffer + at + length, size - at - length);
            size -= length;
            break;
        case 2:
            if (size + length <= sizeof buffer) {
                memmove(buffer + at + length, buffer + at, size - at);
                size += length;
            }
            break;
        case 3:
            buffer[at] ^= (uint8_t)(1u << next_random() % 8);
            break;
        default:
            buffer[at] = (uint8_t)next_random();
        }
    }
    run(buffer, size);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        add_folder(argv[i]);
    }
    run(NULL, 0);
    for (size_t i = 0; i < input_count; i++) {
        run(inputs[i].data, inputs[i].size);
    }
    const char *text = getenv("FUZZ_DRIVER_SECONDS");
    time_t end = time(NULL) + (text ? strtol(text, NULL, 10) : 3);
    unsigned long mutations = 0;
    while (input_count && time(NULL) < end) {
        run_mutation();
        mutations++;
    }
    printf("%zu inputs, %lu mutations\n", input_count, mutations);
    for (size_t i = 0; i < input_count; i++) {
        free(inputs[i].data);
    }
    return 0;
}
