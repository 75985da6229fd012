// kiln remote: the subcommands for the fleet's tier, a server of the Redis protocol that nodes share.
#include "tools/kiln/fleet/remote.hpp"

#include "tools/kiln/fleet/prune.hpp"
#include "tools/kiln/fleet/pull.hpp"
#include "tools/kiln/fleet/push.hpp"
#include "tools/kiln/fleet/status.hpp"

namespace kiln::cli {

void add_remote(Command app, Context& context) {
  const Command remote = app.subcommand("remote", "Use the fleet's tier, a Redis server that nodes share");
  remote.require_subcommand();
  add_remote_status(remote, context);
  add_remote_push(remote, context);
  add_remote_pull(remote, context);
  add_remote_prune(remote, context);
  remote.footer(
      "KILN_REMOTE names the servers, KILN_REMOTE_KEY the public keys whose entries are accepted, and\n"
      "KILN_REMOTE_SIGN the secret key that signs what this node writes.\n"
      "docs/guide/fleet/set-up.md explains the setup.");
}

}  // namespace kiln::cli
