/* Status, log, memory and fault points: what every other part stands on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/turn.h"
#include "base/version.h"
#include "tests/folder.h"

static void each_status_has_a_name_and_a_text(void **state) {
    (void)state;
#define CHECK(name, value, text)                                                                   \
    assert_string_equal(cen_status_name(CEN_##name), "CEN_" #name);                                \
    assert_string_equal(cen_status_text(CEN_##name), text);                                        \
    assert_int_equal(CEN_##name, value);
    CEN_STATUS_MAP(CHECK)
#undef CHECK
    assert_string_equal(cen_status_name((cen_status)-999), "CEN_ERR_?");
    assert_string_equal(cen_status_text((cen_status)1), "unknown status");
    assert_string_equal(cen_version(), CENI_VERSION);
}

static void a_file_is_known_by_what_it_is(void **state) {
    (void)state;
    int in = dup(STDIN_FILENO), fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    int moved = ceni_fd_move(STDIN_FILENO);
    assert_true(moved > STDERR_FILENO);
    assert_int_equal(fcntl(moved, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    assert_true(in < 0 || dup2(in, STDIN_FILENO) == STDIN_FILENO);
    assert_int_equal(ceni_fd_move(moved), moved);
    assert_int_equal(ceni_fd_move(-1), -1);
    ceni_fd_id id = ceni_fd_identify(moved);
    assert_true(ceni_fd_is(moved, id) && ceni_fd_is(fd, id));
    close(moved);
    assert_false(ceni_fd_is(moved, id));
    assert_false(ceni_fd_is(-1, ceni_fd_identify(-1)));
    int other = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_false(ceni_fd_is(other, id));
    close(other);
    close(fd);
    close(in);
}

static void a_file_is_opened_anew_with_other_rights(void **state) {
    (void)state;
    int fd = memfd_create("test", MFD_CLOEXEC), anew = ceni_fd_reopen(fd, O_RDONLY);
    assert_true(fd >= 0 && anew > STDERR_FILENO && anew != fd);
    assert_true(ceni_fd_is(anew, ceni_fd_identify(fd)));
    assert_int_equal(fcntl(anew, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(fcntl(anew, F_GETFD), FD_CLOEXEC);
    assert_int_equal(ceni_fd_reopen(-1, O_RDONLY), -1);
    const int all[] = {fd, -1, anew};
    ceni_fd_close_all(all, 3);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(fcntl(anew, F_GETFD), -1);
}

typedef struct sink {
    int count;
    cen_log_level level;
    char line[2048];
} sink;

static void take(void *arg, cen_log_level level, const char *message) {
    sink *s = arg;
    s->count++;
    s->level = level;
    snprintf(s->line, sizeof s->line, "%s", message);
    errno = EBADF; /* a sink may; the caller must not see it */
}

static void a_message_reaches_the_sink_up_to_its_level(void **state) {
    (void)state;
    sink s = {0};
    ceni_log(CEN_LOG_ERROR, "nobody listens");
    cen_log_set(take, &s, CEN_LOG_WARN);
    errno = ENOENT;
    assert_int_equal(ceni_fail(CEN_ERR_IO, "%s: %d", "a", 7), CEN_ERR_IO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.level, CEN_LOG_ERROR);
    assert_string_equal(s.line, "a: 7");
    ceni_log(CEN_LOG_INFO, "not wanted");
    assert_int_equal(s.count, 1);
    char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    ceni_log(CEN_LOG_WARN, "%s", longest);
    assert_int_equal(strlen(s.line), 1023);
    cen_log_set(NULL, NULL, CEN_LOG_DEBUG);
    ceni_log(CEN_LOG_ERROR, "nobody listens");
    assert_int_equal(s.count, 2);
}

static void *says_nothing(void *unused) {
    (void)unused;
    return cen_log_last_error()[0] ? "another thread's" : NULL;
}

static void the_last_error_is_the_threads_and_told_once(void **state) {
    (void)state;
    (void)cen_log_last_error();
    assert_string_equal(cen_log_last_error(), "");
    errno = ENOENT;
    (void)ceni_fail(CEN_ERR_IO, "one: %d", 1);
    (void)ceni_fail(CEN_ERR_IO, "two:\n%d", 2);
    assert_int_equal(errno, ENOENT);
    ceni_log(CEN_LOG_WARN, "no failure");
    cen_status before = ceni_log_expect(CEN_ERR_IO);
    (void)ceni_fail(CEN_ERR_IO, "expected");
    ceni_log_expect(before);
    pthread_t other;
    void *said = NULL;
    assert_int_equal(pthread_create(&other, NULL, says_nothing, NULL), 0);
    assert_int_equal(pthread_join(other, &said), 0);
    assert_null(said);
    assert_string_equal(cen_log_last_error(), "two:?2");
    assert_string_equal(cen_log_last_error(), "");
    char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    ceni_log(CEN_LOG_ERROR, "%s", longest);
    assert_int_equal(strlen(cen_log_last_error()), 511);
}

static void an_array_grows_and_stays_when_it_cannot(void **state) {
    (void)state;
    uint32_t *array = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(ceni_grow(&array, &capacity, i + 1, sizeof *array), 0);
        array[i] = i;
    }
    assert_int_equal(array[999], 999);
    size_t before = capacity;
    assert_int_equal(ceni_grow(&array, &capacity, SIZE_MAX, sizeof *array), -1);
    assert_int_equal(ceni_grow(&array, &capacity, SIZE_MAX / 2, sizeof *array), -1);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, false);
    assert_int_equal(ceni_grow(&array, &capacity, capacity + 1, sizeof *array), -1);
    assert_int_equal(capacity, before);
    assert_int_equal(array[500], 500);
    ceni_free(array);
}

static void zero_bytes_are_a_pointer_of_their_own(void **state) {
    (void)state;
    void *a = ceni_malloc(0), *b = ceni_calloc(0, 0), *c = ceni_realloc(NULL, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_ptr_not_equal(a, b);
    ceni_free(a);
    ceni_free(b);
    ceni_free(c);
    char *copy = ceni_strdup("text");
    assert_string_equal(copy, "text");
    ceni_free(copy);
}

static void the_nth_call_fails(void **state) {
    (void)state;
    ceni_fault_arm *arm = &ceni_fault_points[CENI_FAULT_IO];
    assert_false(ceni_fault(CENI_FAULT_IO));
    ceni_fault_set(arm, 3, false);
    assert_false(ceni_fault(CENI_FAULT_IO));
    assert_false(ceni_fault(CENI_FAULT_IO));
    assert_true(ceni_fault(CENI_FAULT_IO));
    assert_false(ceni_fault(CENI_FAULT_IO));
    ceni_fault_set(arm, 2, true);
    assert_false(ceni_fault(CENI_FAULT_IO));
    assert_true(ceni_fault(CENI_FAULT_IO));
    assert_true(ceni_fault(CENI_FAULT_IO));
    ceni_fault_set(arm, 0, false);
    assert_false(ceni_fault(CENI_FAULT_IO));
}

enum { THREADS = 4, CALLS = 5000 };

static void *call_often(void *arg) {
    int *failed = arg;
    for (int i = 0; i < CALLS; i++) {
        *failed += ceni_fault(CENI_FAULT_IO);
    }
    return NULL;
}

static void exactly_one_call_fails_among_threads(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    int failed[THREADS] = {0}, sum = 0;
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], THREADS * CALLS / 2, false);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &failed[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += failed[i];
    }
    assert_int_equal(sum, 1);
}

/* In the C library's place: interrupted first, then a little at a time. */
static int random_calls;
ssize_t getrandom(void *out, size_t size, unsigned flags) {
    if (!random_calls++) {
        errno = EINTR;
        return -1;
    }
    size = size < 3 ? size : 3;
    memset(out, 'r', size);
    return (ssize_t)size;
}

static void random_numbers_come_whole_or_not_at_all(void **state) {
    (void)state;
    char out[9] = "", none[9] = "";
    assert_true(ceni_random(out, 8));
    assert_string_equal(out, "rrrrrrrr");
    assert_int_equal(random_calls, 1 + 3);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], 1, false);
    errno = 0;
    assert_false(ceni_random(none, 8));
    assert_int_equal(errno, EIO);
    assert_string_equal(none, "");
    assert_int_equal(random_calls, 1 + 3);
}

static void a_time_is_what_poll_takes(void **state) {
    (void)state;
    const uint64_t ms = 1000000, now = 5 * ms;
    assert_int_equal(ceni_poll_ms(now, now - 1), 0);
    assert_int_equal(ceni_poll_ms(now, now), 0);
    assert_int_equal(ceni_poll_ms(now, now + 1), 1);
    assert_int_equal(ceni_poll_ms(now, now + ms), 1);
    assert_int_equal(ceni_poll_ms(now, now + ms + 1), 2);
    assert_int_equal(ceni_poll_ms(now, now + UINT32_MAX * ms), INT_MAX);
    assert_int_equal(ceni_poll_ms(now, UINT64_MAX), INT_MAX);
}

enum { TAKERS = 3 };
typedef struct taker {
    ceni_turn *turn;
    int *order, *count, number;
} taker;

static void *take_turn(void *arg) {
    const taker *t = arg;
    ceni_turn_take(t->turn);
    t->order[(*t->count)++] = t->number;
    ceni_turn_give(t->turn);
    return NULL;
}

static void turns_are_had_in_their_order(void **state) {
    (void)state;
    ceni_turn turn;
    pthread_t threads[TAKERS];
    taker takers[TAKERS];
    int order[TAKERS + 1] = {0}, count = 0;
    ceni_turn_init(&turn);
    assert_int_equal(ceni_turn_count(&turn), 0);
    ceni_turn_take(&turn);
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = (taker){&turn, order, &count, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, take_turn, &takers[i]), 0);
        while (ceni_turn_count(&turn) != (uint64_t)i + 2) {
            usleep(100);
        }
    }
    ceni_turn_give(&turn);
    ceni_turn_take(&turn); /* behind all of them */
    order[count++] = TAKERS + 1;
    ceni_turn_give(&turn);
    for (int i = 0; i < TAKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i <= TAKERS; i++) {
        assert_int_equal(order[i], i + 1);
    }
    ceni_turn_destroy(&turn);
}

static void lines_are_joined_by_a_space(void **state) {
    char text[] = "\n a\r\n\tb  c\n";
    ceni_join_lines(text);
    assert_string_equal(text, "a b c ");
}

/* U+0085, 061C, 200B, 200E, 202E, 2028, 2066 and FEFF act or hide; the joiner 200D does not. */
static void what_acts_on_a_terminal_is_masked(void **state) {
    static const struct {
        const char *text, *line, *clean;
    } cases[] = {
        {"a\x1b\x7f\n", "a???", "a???"},
        {"\xc2\x85\xd8\x9c", "????", "????"},
        {"a\xe2\x80\xaez\xe2\x80\xa8", "a???z???", "a???z???"},
        {"\xe2\x80\x8b\xe2\x80\x8e\xe2\x81\xa6\xef\xbb\xbf", "????????????", "????????????"},
        {"\xc3\xa9\xe2\x80\x8d\xe2\x82\xac\xf0\x9f\x98\x80",
         "\xc3\xa9\xe2\x80\x8d\xe2\x82\xac\xf0\x9f\x98\x80",
         "\xc3\xa9\xe2\x80\x8d\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff\xe2\x80", "\xff\xe2\x80", "???"}, /* no UTF-8 */
        {"\xed\xa0\x80\xc0\x80", "\xed\xa0\x80\xc0\x80", "?????"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[32], clean[32];
        snprintf(line, sizeof line, "%s", cases[i].text);
        ceni_one_line(line);
        assert_string_equal(line, cases[i].line);
        snprintf(clean, sizeof clean, "%s", cases[i].text);
        ceni_clean_text(clean);
        assert_string_equal(clean, cases[i].clean);
    }
}

static void what_is_no_plain_file_stays(void **state) {
    char *data = NULL, byte = 0;
    size_t size = 0;
    struct stat st;
    assert_int_equal(ceni_file_replace(in_folder("plain"), "old", 3), CEN_OK);
    assert_int_equal(symlink("plain", in_folder("link")), 0);
    assert_int_equal(ceni_file_replace(in_folder("link"), "new!", 4), CEN_OK);
    assert_true(!lstat(in_folder("link"), &st) && S_ISLNK(st.st_mode));
    assert_int_equal(ceni_file_read(in_folder("plain"), 1 << 20, &data, &size), CEN_OK);
    assert_true(size == 4 && !memcmp(data, "new!", 4));
    ceni_free(data);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(ceni_file_replace(in_folder("pipe"), "x", 1), CEN_ERR_INVALID);
    assert_true(!lstat(in_folder("pipe"), &st) && S_ISFIFO(st.st_mode));
    assert_int_equal(files(false), 3);
    /* A terminal: its folder lets nobody replace it, should this fail. */
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal >= 0 && !grantpt(terminal) && !unlockpt(terminal)) {
        assert_int_equal(ceni_file_replace(ptsname(terminal), "x", 1), CEN_OK);
        assert_true(read(terminal, &byte, 1) == 1 && byte == 'x');
    }
    close(terminal);
}

/* At the limit of a file's size no signal ends the program, and nothing is left. */
static void a_file_at_its_limit_leaves_nothing(void **state) {
    struct rlimit before;
    assert_int_equal(ceni_file_replace(in_folder("plain"), "old", 3), CEN_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){3, before.rlim_max}), 0);
    cen_status more = ceni_file_replace(in_folder("plain"), "new!", 4);
    bool told = strstr(cen_log_last_error(), "cannot be written: File too large");
    cen_status as_much = ceni_file_replace(in_folder("plain"), "new", 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(more, CEN_ERR_IO);
    assert_true(told);
    assert_int_equal(as_much, CEN_OK);
    assert_int_equal(files(true), 1);
}

static char replaced[sizeof test_folder + 8];

static void *replace_often(void *failures) {
    static const char bytes[8192];
    for (int i = 0; i < 2000; i++) {
        *(int *)failures += ceni_file_replace(replaced, bytes, sizeof bytes) != CEN_OK;
    }
    return NULL;
}

/* Each writes a file of its own, and one of them is what stays. */
static void threads_replace_one_file(void **state) {
    pthread_t other;
    int failures[2] = {0};
    snprintf(replaced, sizeof replaced, "%s", in_folder("both"));
    assert_int_equal(pthread_create(&other, NULL, replace_often, &failures[1]), 0);
    replace_often(&failures[0]);
    pthread_join(other, NULL);
    assert_true(!failures[0] && !failures[1]);
    assert_int_equal(files(true), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_status_has_a_name_and_a_text),
        cmocka_unit_test(a_file_is_known_by_what_it_is),
        cmocka_unit_test(a_file_is_opened_anew_with_other_rights),
        cmocka_unit_test_setup_teardown(what_is_no_plain_file_stays, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_file_at_its_limit_leaves_nothing, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(threads_replace_one_file, make_folder, drop_folder),
        cmocka_unit_test(a_message_reaches_the_sink_up_to_its_level),
        cmocka_unit_test(the_last_error_is_the_threads_and_told_once),
        cmocka_unit_test(an_array_grows_and_stays_when_it_cannot),
        cmocka_unit_test(zero_bytes_are_a_pointer_of_their_own),
        cmocka_unit_test(the_nth_call_fails),
        cmocka_unit_test(random_numbers_come_whole_or_not_at_all),
        cmocka_unit_test(a_time_is_what_poll_takes),
        cmocka_unit_test(turns_are_had_in_their_order),
        cmocka_unit_test(lines_are_joined_by_a_space),
        cmocka_unit_test(what_acts_on_a_terminal_is_masked),
        cmocka_unit_test(exactly_one_call_fails_among_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
