/* Whom the kernel kills first when a sandbox has no memory left: commands, before their runner (as inside/offer.py). */
#pragma once

/* Before the runner hides itself; where the file is out of reach the kernel chooses by size alone. */
void offer_prepare(void);
/* Around a birth: children inherit more badness, the runner puts it off again. */
void offer_begin(void);
void offer_end(void);
