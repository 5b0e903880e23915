/* Preloaded into a node, this makes its disk slow. The file that SLOW_DISK names has three numbers: by how many milliseconds an
   fsync takes longer at that moment, a read of what is not in the page cache, and a rename, removal or truncation of a file.
   The fsync of a file fails if its path begins with the content of the file that BROKEN_DISK names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(int which) {
  const char *path = getenv("SLOW_DISK");
  char text[32] = {0};
  int saved = errno;
  int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    if (syscall(SYS_read, fd, text, sizeof text - 1) > 0) {
      char *rest = text;
      long ms = 0;
      for (int i = 0; i <= which; i++) ms = strtol(rest, &rest, 10);
      struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
      nanosleep(&t, NULL);
    }
    syscall(SYS_close, fd);
  }
  errno = saved;
}

static int is_broken(int fd) {
  const char *list = getenv("BROKEN_DISK");
  char name[32], path[4096] = {0}, broken[4096] = {0};
  int saved = errno, found = 0;
  int file = list ? (int)syscall(SYS_openat, AT_FDCWD, list, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    ssize_t length = syscall(SYS_read, file, broken, sizeof broken - 1);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    found = length > 0 && readlink(name, path, sizeof path - 1) >= length && !strncmp(path, broken, length);
    syscall(SYS_close, file);
  }
  errno = found ? EIO : saved;
  return found;
}

static int is_cold(int fd, off64_t offset) {
  char byte;
  struct iovec one = {&byte, 1};
  int saved = errno;
  int cold = preadv64v2(fd, &one, 1, offset, RWF_NOWAIT) < 0 && errno == EAGAIN;
  errno = saved;
  return cold;
}

#define REAL(name) \
  static typeof(&name) real; \
  if (!real) real = (typeof(&name))dlsym(RTLD_NEXT, #name)

int fsync(int fd) {
  REAL(fsync);
  wait_for_disk(0);
  return is_broken(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
  REAL(fdatasync);
  wait_for_disk(0);
  return is_broken(fd) ? -1 : real(fd);
}

ssize_t pread64(int fd, void *buffer, size_t size, off64_t offset) {
  REAL(pread64);
  if (is_cold(fd, offset)) wait_for_disk(1);
  return real(fd, buffer, size, offset);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) {
  REAL(sendfile64);
  if (offset && is_cold(in, *offset)) wait_for_disk(1);
  return real(out, in, offset, size);
}

int rename(const char *from, const char *to) {
  REAL(rename);
  wait_for_disk(2);
  return real(from, to);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
  REAL(renameat);
  wait_for_disk(2);
  return real(from_fd, from, to_fd, to);
}

int unlink(const char *path) {
  REAL(unlink);
  wait_for_disk(2);
  return real(path);
}

int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64);
  wait_for_disk(2);
  return real(fd, size);
}

int truncate64(const char *path, off64_t size) {
  REAL(truncate64);
  wait_for_disk(2);
  return real(path, size);
}
