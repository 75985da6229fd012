// libsodium, started.
#pragma once

namespace kiln::bundle {

/// Thread-safe; cheap after the first call. Throws Error(internal).
void need_sodium();

}  // namespace kiln::bundle
