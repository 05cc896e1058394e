#include "connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fault.h"
#include "head.h"

enum { PATIENCE_S = 2 }; /* a loopback connects at once, unless whoever listens takes nobody */

void serve_connect(const Frame *frame) {
    long long port = need_integer(frame, "port");
    if (port < 1 || port > 65535) {
        answer_error(frame->stream, "UserError", "port %lld: expected 1 to 65535", port);
        return;
    }
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = PATIENCE_S}, none = {0};
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (fd < 0 || connect(fd, (struct sockaddr *)&where, sizeof where) < 0) {
        const char *kind = fd >= 0 ? "UserError" : errno == EPERM ? "Unsupported" : "InfraError";
        answer_error(frame->stream, kind, "port %lld of the sandbox: %s", port, errno == EINPROGRESS ? "no answer" : strerror(errno));
    } else {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
        wire_send(OK, frame->stream, &(Bytes){.data = "{}", .size = 2}, NULL, 0, fd);
    }
    if (fd >= 0) close(fd);
}
