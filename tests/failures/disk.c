/* A disk that fails, for LD_PRELOAD: counts the calls that change files below one folder, and at the k-th one
   is full from then on, is full after half of the bytes, or kills the process. It can also write a log of all
   calls, from which the states that a power cut may leave are made (power_cuts.py).

   Calls inside libc (stdio's own writes) are not seen; fwrite is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, COUNT, FULL, HALF, KILL };

static char folder[4096];
static int mode = OFF, log_file = -1;
static long count, at;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Called by ctypes: which folder, what happens at the k-th call, and the file of the log, -1 for none. */
void disk_set(const char *where, int what, long k, int log) {
    strncpy(folder, where, sizeof folder - 1);
    mode = what, at = k, log_file = log, count = 0;
}

long disk_count(void) { return count; }

/* Whether a path is the folder, which ends in a slash, or below it. */
static int below(const char *path) {
    size_t length = strlen(folder) - 1;
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int named(int file, char *path, size_t size) {
    char link[64];
    if (mode == OFF && log_file < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int absolute(const char *given, char *path, size_t size) {
    if (mode == OFF && log_file < 0) return 0;
    if (given[0] == '/') {
        snprintf(path, size, "%s", given);
    } else {
        char here[2048];
        if (!getcwd(here, sizeof here)) return 0;
        snprintf(path, size, "%s/%s", here, given);
    }
    return below(path);
}

/* One record: kind, number of the file's inode, offset, then lengths and bytes of path and data. */
static void note(char kind, ino_t inode, int64_t offset, const char *path, const void *data, size_t length) {
    if (log_file < 0) return;
    int64_t numbers[4] = {(int64_t)inode, offset, (int64_t)strlen(path), (int64_t)length};
    struct iovec parts[4] = {{&kind, 1}, {numbers, sizeof numbers}, {(void *)path, strlen(path)}, {(void *)data, length}};
    REAL(writev)(log_file, parts, 4);
}

static ino_t inode_of(int file) {
    struct stat facts;
    return fstat(file, &facts) == 0 ? facts.st_ino : 0;
}

/* 0: go on; otherwise the call fails with ENOSPC, or, if it is 2, after half of its bytes. */
static int fails(int takes_space) {
    if (mode == OFF) return 0;
    long number = count++;
    if (mode == KILL && number == at) kill(getpid(), SIGKILL);
    if (!takes_space || number < at || (mode != FULL && mode != HALF)) return 0;
    errno = ENOSPC;
    return mode == HALF && number == at ? 2 : 1;
}

static ssize_t wrote(int file, const void *data, size_t length, off64_t offset, int placed) {
    __typeof__(&write) real = REAL(write);
    __typeof__(&pwrite64) real_at = REAL(pwrite64);
    char path[4200];
    if (!named(file, path, sizeof path)) return placed ? real_at(file, data, length, offset) : real(file, data, length);
    int failed = fails(1);
    if (failed == 1) return -1;
    if (failed == 2) length = length > 1 ? length / 2 : length;
    ssize_t done = placed ? real_at(file, data, length, offset) : real(file, data, length);
    int error = errno;
    if (done > 0) note('w', inode_of(file), placed ? offset : lseek64(file, 0, SEEK_CUR) - done, path, data, (size_t)done);
    errno = error;
    return done;
}

ssize_t write(int file, const void *data, size_t length) { return wrote(file, data, length, 0, 0); }
ssize_t pwrite(int file, const void *data, size_t length, off_t offset) { return wrote(file, data, length, offset, 1); }
ssize_t pwrite64(int file, const void *data, size_t length, off64_t offset) { return wrote(file, data, length, offset, 1); }

ssize_t writev(int file, const struct iovec *parts, int number) {
    char path[4200];
    if (!named(file, path, sizeof path)) return REAL(writev)(file, parts, number);
    ssize_t total = 0;
    for (int k = 0; k < number; k++) {
        ssize_t done = wrote(file, parts[k].iov_base, parts[k].iov_len, 0, 0);
        if (done < 0) return total ? total : -1;
        total += done;
    }
    return total;
}

size_t fwrite(const void *data, size_t size, size_t number, FILE *stream) {
    char path[4200];
    if (named(fileno(stream), path, sizeof path) && fails(1)) return 0;
    return REAL(fwrite)(data, size, number, stream);
}

static int cut(int file, off64_t length) {
    char path[4200];
    int ours = named(file, path, sizeof path);
    struct stat facts;
    if (ours && fails(fstat(file, &facts) == 0 && length > facts.st_size)) return -1;
    int done = REAL(ftruncate64)(file, length);
    if (ours && done == 0) note('t', inode_of(file), length, path, "", 0);
    return done;
}

int ftruncate(int file, off_t length) { return cut(file, length); }
int ftruncate64(int file, off64_t length) { return cut(file, length); }

static int synced(int file, int (*real)(int)) {
    char path[4200];
    int ours = named(file, path, sizeof path);
    if (ours && fails(1)) return -1; /* with delayed allocation a full disk may show here first */
    int done = real(file);
    if (ours && done == 0) note('s', inode_of(file), 0, path, "", 0);
    return done;
}

int fsync(int file) { return synced(file, REAL(fsync)); }
int fdatasync(int file) { return synced(file, REAL(fdatasync)); }

static int opened(int place, const char *given, int flags, mode_t rights) {
    char path[4200];
    __typeof__(&openat64) real = REAL(openat64);
    int ours = (flags & (O_CREAT | O_TRUNC)) && absolute(given, path, sizeof path);
    if (!ours) return real(place, given, flags, rights);
    struct stat facts;
    int exists = stat(path, &facts) == 0, empties = exists && (flags & O_TRUNC) && facts.st_size;
    if ((!exists || empties) && fails(!exists)) return -1;
    int file = real(place, given, flags, rights);
    if (file >= 0 && !exists) note('c', inode_of(file), 0, path, "", 0);
    if (file >= 0 && empties) note('t', inode_of(file), 0, path, "", 0);
    return file;
}

#define RIGHTS                              \
    mode_t rights = 0;                      \
    if (flags & (O_CREAT | __O_TMPFILE)) {  \
        va_list more;                       \
        va_start(more, flags);              \
        rights = va_arg(more, mode_t);      \
        va_end(more);                       \
    }

int open(const char *path, int flags, ...) { RIGHTS return opened(AT_FDCWD, path, flags, rights); }
int open64(const char *path, int flags, ...) { RIGHTS return opened(AT_FDCWD, path, flags, rights); }
int openat(int place, const char *path, int flags, ...) { RIGHTS return opened(place, path, flags, rights); }
int openat64(int place, const char *path, int flags, ...) { RIGHTS return opened(place, path, flags, rights); }

int rename(const char *old, const char *new) {
    char from[4200], to[4200];
    int ours = absolute(new, to, sizeof to) && absolute(old, from, sizeof from);
    if (ours && fails(0)) return -1;
    int done = REAL(rename)(old, new);
    if (ours && done == 0) note('r', 0, 0, from, to, strlen(to));
    return done;
}

int unlink(const char *given) {
    char path[4200];
    int ours = absolute(given, path, sizeof path);
    if (ours && fails(0)) return -1;
    int done = REAL(unlink)(given);
    if (ours && done == 0) note('u', 0, 0, path, "", 0);
    return done;
}

int mkdir(const char *given, mode_t rights) {
    char path[4200];
    int ours = absolute(given, path, sizeof path);
    if (ours && fails(1)) return -1;
    int done = REAL(mkdir)(given, rights);
    if (ours && done == 0) note('m', 0, 0, path, "", 0);
    return done;
}
