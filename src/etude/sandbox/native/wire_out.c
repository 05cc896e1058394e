#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"
#include "wire.h"

static int control = -1;

void wire_open(int fd) { control = fd; }

int wire_fd(void) { return control; }

static void put_u32(char *to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, sizeof value);
}

static void skip_sent(struct msghdr *message, size_t sent) {
    while (message->msg_iovlen > 0 && sent >= message->msg_iov->iov_len) {
        sent -= message->msg_iov->iov_len;
        message->msg_iov++;
        message->msg_iovlen--;
    }
    if (message->msg_iovlen > 0) {
        message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + sent;
        message->msg_iov->iov_len -= sent;
    }
}

/* False: the kernel passes no more descriptors of this user for now (whoever is inside is that user too), and nothing was sent. */
static bool send_all(struct msghdr *message) {
    while (message->msg_iovlen > 0) {
        ssize_t sent = sendmsg(control, message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd ready = {control, POLLOUT, 0};
            poll(&ready, 1, -1);
        } else if (sent < 0 && errno == ETOOMANYREFS && message->msg_control != NULL) {
            return false;
        } else if (sent < 0 && errno != EINTR) {
            _exit(0); /* nobody is left to answer: the sandbox ends as at the socket's end */
        } else if (sent >= 0) {
            message->msg_control = NULL; /* descriptors went with the first byte */
            message->msg_controllen = 0;
            skip_sent(message, (size_t)sent);
        }
    }
    return true;
}

void wire_send(uint8_t kind, uint32_t stream, const Bytes *head, const struct iovec *parts, int count, int fd) {
    size_t length = COUNT_BYTES + head->size;
    for (int n = 0; n < count; n++) length += parts[n].iov_len;
    if (head->failed) {
        answer_error(stream, "InfraError", "no memory for the answer");
        return;
    }
    if (length > MOST_FRAME_BYTES) {
        answer_error(stream, "OutputLimit", "an answer of %zu bytes is over the limit of %d", length, MOST_FRAME_BYTES);
        return;
    }
    char start[HEADER_BYTES + COUNT_BYTES];
    put_u32(start, (uint32_t)length);
    start[4] = (char)kind;
    put_u32(start + 5, stream);
    put_u32(start + HEADER_BYTES, (uint32_t)head->size);
    struct iovec pieces[5] = {{start, sizeof start}, {head->data, head->size}};
    if (count > 0) memcpy(pieces + 2, parts, (size_t)count * sizeof *parts);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count + 2};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } rights = {0};
    if (fd >= 0) {
        message.msg_control = rights.room;
        message.msg_controllen = sizeof rights.room;
        rights.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&rights.head), &fd, sizeof fd);
    }
    if (!send_all(&message))
        answer_error(stream, "CapacityExhausted", "too many descriptors are on their way between sockets of the inside's user");
}

void wire_say(uint8_t kind, uint32_t stream, const char *head) {
    Bytes said = {.data = (char *)head, .size = strlen(head)};
    wire_send(kind, stream, &said, NULL, 0, -1);
}
