// The functions that turn a router's logits into scores.
#pragma once

namespace kiln {

enum class Score { softmax, sigmoid };

}  // namespace kiln
