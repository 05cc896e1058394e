#include "job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "fault.h"
#include "leftover.h"

Job *jobs;

Job *job_find(uint32_t stream) {
    for (Job *job = jobs; job != NULL; job = job->next)
        if (job->stream == stream && !job->gone) return job;
    return NULL;
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

void job_end(Job *job, int status, const struct rusage *usage) {
    if (job->over) return;
    job->over = true;
    job->status = status;
    job->ended_s = now_s();
    if (usage != NULL) {
        job->cpu_s = seconds(usage->ru_utime) + seconds(usage->ru_stime);
        job->max_rss_kib = usage->ru_maxrss;
    }
}

static bool holds(const Source *source) {
    int waiting = 0;
    return source->fd >= 0 && ioctl(source->fd, FIONREAD, &waiting) == 0 && waiting > 0;
}

/* Output is there, but the client takes none for now: it must not be lost. */
static bool is_held_up(const Job *job) {
    return job->streams && job->credit <= 0 && !job->cancelled && (holds(&job->out) || holds(&job->err));
}

double job_wakes_s(const Job *job) {
    if (!job->over) return job->deadline_s;
    return is_held_up(job) ? INFINITY : job->ended_s + DRAIN_S;
}

bool job_is_finished(const Job *job, double now) {
    if (!job->over) return false;
    if (job->out.fd < 0 && job->err.fd < 0) return true;
    return job->cancelled || (now >= job->ended_s + DRAIN_S && !is_held_up(job));
}

static void say_end(const Job *job, Bytes *head) {
    if (WIFSIGNALED(job->status))
        bytes_say(head, "{\"rc\":%d,\"signal\":%d", 128 + WTERMSIG(job->status), WTERMSIG(job->status));
    else
        bytes_say(head, "{\"rc\":%d,\"signal\":null", WEXITSTATUS(job->status));
    bytes_say(head, ",\"timed_out\":%s,\"oom\":%s", job->timed_out ? "true" : "false", job->oom ? "true" : "false");
    bytes_say(head, ",\"duration_s\":%.6f,\"cpu_s\":%.6f,\"max_rss_kib\":%ld", job->ended_s - job->started_s, job->cpu_s, job->max_rss_kib);
}

/* What came while this process was busy elsewhere, beyond the drain time: still a part of it. */
static void drain_last(Job *job) {
    Source *both[] = {&job->out, &job->err};
    for (int n = 0; n < 2; n++)
        for (int round = 0; round < 16 && holds(both[n]) && (!job->streams || job->credit > 0); round++) job_drain(job, both[n]);
}

void job_answer(Job *job) {
    drain_last(job);
    if (!job->has_tty && !job->cancelled) {
        leftover_take(&job->out, job->left_path);
        leftover_take(&job->err, job->left_path);
    }
    if (job->streams) job_send_note(job);
    job_close(job);
    Bytes head = {0};
    say_end(job, &head);
    if (job->streams) {
        bytes_say(&head, ",\"truncated\":false}");
        wire_send(EXIT, job->stream, &head, NULL, 0, -1);
    } else {
        bool cut_out, cut_err;
        Bytes out = output_result(&job->kept[0], &cut_out), err = output_result(&job->kept[1], &cut_err);
        bytes_say(&head, ",\"out\":%zu,\"truncated\":%s}", out.size, cut_out || cut_err ? "true" : "false");
        head.failed |= out.failed || err.failed;
        wire_send(OK, job->stream, &head, (struct iovec[]){{out.data, out.size}, {err.data, err.size}, {job->note, strlen(job->note)}}, 3, -1);
        bytes_free(&out);
        bytes_free(&err);
    }
    bytes_free(&head);
}

void job_close(Job *job) {
    source_close(&job->in);
    source_close(&job->out);
    source_close(&job->err);
    source_close(&job->report);
    job->gone = true;
}

void jobs_sweep(void) {
    for (Job **link = &jobs; *link != NULL;) {
        Job *job = *link;
        if (!job->gone) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        bytes_free(&job->input);
        free(job->left_path);
        for (int n = 0; n < 2; n++) {
            bool cut;
            Bytes left = output_result(&job->kept[n], &cut);
            bytes_free(&left);
        }
        free(job->elders);
        free(job);
    }
}
