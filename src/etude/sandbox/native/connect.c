#include "connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"
#include "head.h"

#define PATIENCE_S 5.0 /* a loopback connects at once, unless whoever listens lets its queue fill up */

typedef struct Connecting {
    Source source; /* first: what the loop hands back is its address */
    struct Connecting *next;
    uint32_t stream;
    long long port;
    double until_s;
} Connecting;

static Connecting *under_way;

bool connect_uses(uint32_t stream) {
    for (Connecting *one = under_way; one != NULL; one = one->next)
        if (one->stream == stream && one->source.fd >= 0) return true;
    return false;
}

double connect_wakes_s(void) {
    double earliest_s = INFINITY;
    for (Connecting *one = under_way; one != NULL; one = one->next) earliest_s = fmin(earliest_s, one->until_s);
    return earliest_s;
}

static void answer(Connecting *one, int code) {
    if (code == 0) {
        fcntl(one->source.fd, F_SETFL, 0); /* blocking, as a fresh socket is */
        wire_send(OK, one->stream, &(Bytes){.data = "{}", .size = 2}, NULL, 0, one->source.fd);
    } else {
        answer_error(one->stream, "UserError", "port %lld of the sandbox: %s", one->port, strerror(code));
    }
    source_close(&one->source);
    one->until_s = 0; /* to be freed when this turn's events are through */
}

void connect_arrived(Source *source) {
    int code = 0;
    socklen_t size = sizeof code;
    if (getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0) code = errno;
    answer((Connecting *)source, code);
}

void connect_check(void) {
    double now = under_way == NULL ? 0 : now_s();
    for (Connecting **link = &under_way; *link != NULL;) {
        Connecting *one = *link;
        if (one->source.fd >= 0 && now >= one->until_s) answer(one, ETIMEDOUT);
        if (one->source.fd >= 0) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        free(one);
    }
}

void serve_connect(const Frame *frame) {
    long long port = need_integer(frame, "port");
    if (port < 1 || port > 65535) {
        answer_error(frame->stream, "UserError", "port %lld is none: 1 to 65535", port);
        return;
    }
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), code = errno;
    Connecting *one = fd < 0 ? NULL : malloc(sizeof *one);
    if (one == NULL) {
        answer_error(frame->stream, fd < 0 && code == EPERM ? "Unsupported" : "InfraError", "connect: %s", strerror(fd < 0 ? code : ENOMEM));
        if (fd >= 0) close(fd);
        return;
    }
    *one = (Connecting){{.fd = fd, .kind = SOURCE_CONNECT}, under_way, frame->stream, port, now_s() + PATIENCE_S};
    under_way = one;
    if (connect(fd, (struct sockaddr *)&where, sizeof where) == 0)
        answer(one, 0);
    else if (errno == EINPROGRESS)
        source_watch(&one->source, EPOLLOUT);
    else
        answer(one, errno);
}
