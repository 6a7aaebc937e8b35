/* Blocks as on a disk that hangs: nothing of the files below HANG_BELOW is synced while the file HANG_WHILE exists.

   Preloaded into a process (LD_PRELOAD). All else, and all other files, is as without it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void await_disk(int file) {
  const char *below = getenv("HANG_BELOW"), *hanging = getenv("HANG_WHILE");
  char link[64], path[PATH_MAX];
  ssize_t length;
  if (below == NULL || hanging == NULL || access(hanging, F_OK) != 0) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = '\0';
  if (strncmp(path, below, strlen(below)) != 0) return;
  while (access(hanging, F_OK) == 0) usleep(20000);
}

int fdatasync(int file) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  await_disk(file);
  return next(file);
}

int fsync(int file) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  await_disk(file);
  return next(file);
}
