/* LD_PRELOAD: notes in $DET_RECORD, in their order, all calls that change files under $DET_RECORD_ROOT.
   One note: "NAME OFFSET PATH_LENGTH DATA_LENGTH\n", the path, the data (of a rename: the new path). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static const char *root;

__attribute__((constructor)) static void begin(void) {
    root = getenv("DET_RECORD_ROOT");
    record = REAL(open)(getenv("DET_RECORD"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *data, size_t size) {
    for (const char *rest = data; size;) {
        ssize_t written = REAL(write)(record, rest, size);
        if (written < 0) abort();
        rest += written, size -= written;
    }
}

static void note(const char *name, const char *path, long long offset, const void *data, size_t size) {
    char head[128];
    if (record < 0 || strncmp(path, root, strlen(root))) return;
    put(head, snprintf(head, sizeof head, "%s %lld %zu %zu\n", name, offset, strlen(path), size));
    put(path, strlen(path));
    put(data, size);
}

static const char *of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

static const char *at(int directory, const char *name, char *path) {
    if (*name == '/') return strcpy(path, name);
    if (directory == AT_FDCWD) { if (!getcwd(path, PATH_MAX)) abort(); }
    else of(directory, path);
    return strcat(strcat(path, "/"), name);
}

#define CALL(type, call, ...) \
    pthread_mutex_lock(&lock); \
    char path[2 * PATH_MAX]; \
    type result = call; \
    if (result >= 0) { __VA_ARGS__; } \
    pthread_mutex_unlock(&lock); \
    return result;

static int opened(int directory, const char *name, int flags, mode_t mode) {
    char path[2 * PATH_MAX];
    int is_new = (flags & O_CREAT) && faccessat(directory, name, F_OK, 0);
    int fd = REAL(openat)(directory, name, flags, mode);
    if (fd >= 0 && is_new) note("create", at(directory, name, path), 0, "", 0);
    if (fd >= 0 && (flags & O_TRUNC)) note("truncate", at(directory, name, path), 0, "", 0);
    return fd;
}

#define OPEN(name) \
    int name(const char *file, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        pthread_mutex_lock(&lock); int fd = opened(AT_FDCWD, file, flags, mode); pthread_mutex_unlock(&lock); \
        return fd; \
    }
#define OPENAT(name) \
    int name(int directory, const char *file, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        pthread_mutex_lock(&lock); int fd = opened(directory, file, flags, mode); pthread_mutex_unlock(&lock); \
        return fd; \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    struct stat status;
    if (fd == record || fstat(fd, &status) || !S_ISREG(status.st_mode)) return REAL(write)(fd, data, size);
    CALL(ssize_t, REAL(write)(fd, data, size),
         note("write", of(fd, path), lseek(fd, 0, SEEK_CUR) - result, data, result))
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    CALL(ssize_t, REAL(pwrite)(fd, data, size, offset), note("write", of(fd, path), offset, data, result))
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    CALL(ssize_t, REAL(pwrite64)(fd, data, size, offset), note("write", of(fd, path), offset, data, result))
}
int ftruncate(int fd, off_t size) { CALL(int, REAL(ftruncate)(fd, size), note("truncate", of(fd, path), size, "", 0)) }
int ftruncate64(int fd, off64_t size) {
    CALL(int, REAL(ftruncate64)(fd, size), note("truncate", of(fd, path), size, "", 0))
}
int fsync(int fd) { CALL(int, REAL(fsync)(fd), note("sync", of(fd, path), 0, "", 0)) }
int fdatasync(int fd) { CALL(int, REAL(fdatasync)(fd), note("sync", of(fd, path), 0, "", 0)) }
int mkdir(const char *name, mode_t mode) {
    CALL(int, REAL(mkdir)(name, mode), note("mkdir", at(AT_FDCWD, name, path), 0, "", 0))
}
int rmdir(const char *name) { CALL(int, REAL(rmdir)(name), note("remove", at(AT_FDCWD, name, path), 0, "", 0)) }
int unlink(const char *name) { CALL(int, REAL(unlink)(name), note("remove", at(AT_FDCWD, name, path), 0, "", 0)) }
int unlinkat(int directory, const char *name, int flags) {
    CALL(int, REAL(unlinkat)(directory, name, flags), note("remove", at(directory, name, path), 0, "", 0))
}
int rename(const char *old, const char *new) {
    char target[2 * PATH_MAX];
    at(AT_FDCWD, new, target);
    CALL(int, REAL(rename)(old, new), note("rename", at(AT_FDCWD, old, path), 0, target, strlen(target)))
}
