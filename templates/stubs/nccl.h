#pragma once

typedef struct ncclComm* ncclComm_t;
