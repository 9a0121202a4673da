//! What each key means, with an example. The order is that of the reference.

/// The text about a key.
pub(super) struct About {
    pub(super) section: &'static str,
    pub(super) key: &'static str,
    /// The values it takes, where the reader does not say it in words of its own.
    pub(super) takes: &'static str,
    pub(super) about: &'static str,
    pub(super) example: &'static str,
}

const fn about(
    section: &'static str,
    key: &'static str,
    takes: &'static str,
    about: &'static str,
    example: &'static str,
) -> About {
    About { section, key, takes, about, example }
}

#[rustfmt::skip]
pub(super) const ALL: &[About] = &[
    about("", "name", "", "Name of the experiment, and of its run directory runs/NAME.", "name = \"houses\""),
    about("", "seeds", "a list of whole numbers, each once", "Each algorithm is run once with each seed. The seed decides the problem's random data, partition, mini-batches, dropout, starting point and dropped edges; the same seed gives the same bits.", "seeds = [0, 1, 2]"),
    about("", "rounds", "", "Communication rounds. A round is local_steps updates and one mixing; a record of round r is made right after the r-th mixing, and round 0 is x(0), after the method's own start-up.", "rounds = 200"),
    about("", "eval_every", "", "Rounds between records; the last round is always recorded. Default: a twentieth of the rounds, or as many as keep evaluations below a fifth of the work of the run.", "eval_every = 10"),
    about("", "eval_agents", "a whole number from 1, or \"all\"", "Agents whose own models are measured in records. At most so many are drawn from the seed, the same in all records and for all methods; local_... is their mean and worst_... the worst of them. Default: 16.", "eval_agents = \"all\""),
    about("", "stop", "a table with grad_norm, consensus or loss_change", "When a run has converged and ends before its last round; checked at every record. All tolerances that are given must hold.", "stop = { grad_norm = 1e-6 }"),
    about("", "precision", "", "Numbers of models and gradients. Default: f64, or f32 for neural networks.", "precision = \"f32\""),
    about("", "network", "a section [network]", "The graph of the agents and its weights.", "network = { agents = 10 }"),
    about("", "problem", "a section [problem]", "The agents' objectives f_i. The network minimises f = (1/N) sum_i f_i, the mean of the agents' objectives, whatever the number of their samples.", "problem = { kind = \"quadratic\" }"),
    about("", "start", "a section [start]", "The agents' starting points.", "start = { value = \"zeros\" }"),
    about("", "algorithm", "sections [[algorithm]], at least one", "The algorithms to be compared.", "algorithm = [{ name = \"mile\", step_size = 0.1 }]"),
    about("", "agent", "a section [agent]", "Settings of agents that run as processes of their own; mile run ignores them.", "agent = { checkpoint_every = 10 }"),

    about("stop", "grad_norm", "", "Largest norm of the gradient of f at the average model; with problem.l1 that of x - prox(x - grad f(x)).", "grad_norm = 1e-6"),
    about("stop", "consensus", "", "Largest consensus error: (1/N) sum_i |x_i - mean x|^2.", "consensus = 1e-8"),
    about("stop", "loss_change", "", "Largest change of the loss of the average model from one record to the next, divided by the larger of 1 and the loss.", "loss_change = 1e-6"),

    about("network", "agents", "", "Number of agents N.", "agents = 20"),
    about("network", "topology", "", "The graph. A torus or grid is as close to a square as the number of agents allows: with a prime number it is a ring or a path.", "topology = \"torus\""),
    about("network", "p", "", "Probability of an edge (erdos-renyi).", "p = 0.3"),
    about("network", "degree", "", "Neighbours of each agent (random-regular, small-world).", "degree = 4"),
    about("network", "rewire", "", "Probability that an edge is rewired (small-world).", "rewire = 0.1"),
    about("network", "edges", "", "File with an edge list, two agents a line (topology = \"file\").", "edges = \"edges.txt\""),
    about("network", "mixing", "", "Rule of the mixing matrix W, which is symmetric with rows that sum to 1. metropolis: W_ij = 1/(1 + max(deg_i, deg_j)); lazy-metropolis: (I + W)/2 of that.", "mixing = \"lazy-metropolis\""),
    about("network", "matrix", "", "File with the mixing matrix, one row a line (mixing = \"file\").", "matrix = \"weights.txt\""),
    about("network", "drop_rate", "", "Probability that an edge is down in a round. Both ends then keep the weight of the edge for themselves.", "drop_rate = 0.1"),
    about("network", "seed", "", "Seed of a random graph.", "seed = 1"),

    about("start", "value", "", "model: the problem's own starting point, the same for all agents, or zeros if it has none; zeros: the origin; common: one random point for all; random: one for each.", "value = \"random\""),

    about("algorithm", "name", "", "The method; mile algorithms lists them.", "name = \"mile\""),
    about("algorithm", "label", "", "Its name in tables, figures and files; each algorithm needs its own. Default: the name of the method.", "label = \"MILE, xi = 0.1\""),
    about("algorithm", "step_size", "a positive number, or \"auto\"", "Step size alpha. auto: half of the largest one with which the method is stable on quadratics of the estimated curvature, on this network.", "step_size = 0.05"),
    about("algorithm", "schedule", "constant, step, cosine, or a table with kind", "How the step size changes from round to round.", "schedule = { kind = \"cosine\", warmup = 10 }"),
    about("algorithm", "local_steps", "a whole number from 1", "Local steps tau: updates in a round.", "local_steps = 5"),
    about("algorithm", "xi", "a number in (0, 1], \"paper\" or \"auto\"", "Weight of MILE's correction (mile). paper: 0.9 * 2/(tau + 3); auto: from the estimated curvature, the network and the gradient noise, the same however long the run is.", "xi = \"auto\""),
    about("algorithm", "gamma", "a number in (0, 1], or \"auto\"", "Weight of MILE's mixing, if decoupled from xi (mile).", "gamma = 0.9"),
    about("algorithm", "beta", "", "Weight of the correction (led, proxskip).", "beta = 0.1"),
    about("algorithm", "eta_s", "", "Global step size, applied between rounds (k-gt, dec-fedtrack, scaffold).", "eta_s = 1.0"),
    about("algorithm", "communications", "", "Exchanges in a round (gta).", "communications = 2"),
    about("algorithm", "probability", "", "Probability that a step communicates (proxskip, mg-skip).", "probability = 0.2"),
    about("algorithm", "chi", "", "Damping of the mixing (proxskip).", "chi = 1.0"),
    about("algorithm", "gossip", "", "Gossip exchanges in a round (mg-skip).", "gossip = 3"),
    about("algorithm", "variant", "", "Order of mixing and gradient step (dsgd): adapt then combine, or combine then adapt.", "variant = \"cta\""),
    about("algorithm.schedule", "kind", "", "constant: always step_size; step: times factor every so many rounds; cosine: half a cosine from step_size to floor times step_size.", "kind = \"cosine\""),
    about("algorithm.schedule", "warmup", "", "Rounds in which the step size rises linearly to its first value.", "warmup = 10"),
    about("algorithm.schedule", "every", "", "Rounds between two steps (step).", "every = 50"),
    about("algorithm.schedule", "factor", "", "Factor of a step (step).", "factor = 0.1"),
    about("algorithm.schedule", "rounds", "", "Rounds until the floor (cosine).", "rounds = 200"),
    about("algorithm.schedule", "floor", "", "Last step size, as a part of the first (cosine).", "floor = 0.01"),

    about("agent", "id", "a whole number below network.agents", "The agent's number (mile agent only).", "id = 0"),
    about("agent", "key", "", "Its key file, which mile keygen writes (mile agent only). Default: key.", "key = \"key\""),
    about("agent", "folder", "", "Folder of its state (mile agent only). Default: the folder of the file.", "folder = \"state\""),
    about("agent", "listen", "", "Address on which it listens (mile agent only). Default: 0.0.0.0:7100.", "listen = \"0.0.0.0:7100\""),
    about("agent", "neighbour", "sections [[agent.neighbour]], one for each neighbour", "Its neighbours (mile agent only).", "neighbour = [{ id = 1, key = \"...\" }]"),
    about("agent", "checkpoint_every", "", "Rounds between checkpoints. Default: 1.", "checkpoint_every = 10"),
    about("agent", "on_missing", "", "What to do while a neighbour is unreachable: wait, or skip the edge in this round after the deadline.", "on_missing = \"skip-edge\""),
    about("agent", "deadline", "", "Seconds after which an edge is skipped (on_missing = \"skip-edge\"). Default: 30.", "deadline = 10"),
    about("agent", "timeout", "", "Seconds to wait for a neighbour before the agent fails. Default: for ever.", "timeout = 3600"),
    about("agent", "linger", "", "Seconds to stay after the last round for neighbours that are unreachable. Default: 600.", "linger = 60"),
    about("agent", "relay", "", "URL of a relay server, for agents that cannot reach each other directly.", "relay = \"https://relay.example.org\""),
    about("agent", "metrics", "", "Address on which Prometheus metrics are served.", "metrics = \"127.0.0.1:9100\""),
    about("agent", "snapshots", "", "Whether to write the model at every recorded round, for mile swarm to gather. Default: false.", "snapshots = true"),
    about("agent", "stop", "a table with grad_norm_sq or consensus_error", "Tolerances at which all agents stop before the last round, which they agree on by gossip.", "stop = { grad_norm_sq = 1e-8 }"),
    about("agent.stop", "grad_norm_sq", "", "Largest squared norm of the mean gradient.", "grad_norm_sq = 1e-8"),
    about("agent.stop", "consensus_error", "", "Largest consensus error.", "consensus_error = 1e-8"),
    about("agent.neighbour", "id", "the number of a neighbour in the experiment's graph", "Its number.", "id = 1"),
    about("agent.neighbour", "key", "", "Its public key.", "key = \"3f...\""),
    about("agent.neighbour", "weight", "the weight of the edge in the experiment's mixing matrix", "Checked against the experiment; may be left out.", "weight = 0.25"),
    about("agent.neighbour", "addresses", "a list such as [\"host:7100\"]", "Addresses at which it can be reached. One of two neighbours needs one of the other.", "addresses = [\"node1.example.org:7100\"]"),

    about("problem (quadratic)", "kind", "", "quadratic: generated objectives f_i(x) = (1/2) (x - b_i)' A_i (x - b_i) with curvatures between 1/condition and 1.", "kind = \"quadratic\""),
    about("problem (quadratic)", "dim", "", "Dimension n.", "dim = 50"),
    about("problem (quadratic)", "condition", "", "Ratio of the largest to the smallest curvature.", "condition = 100"),
    about("problem (quadratic)", "heterogeneity", "", "How far the agents' minimisers lie apart; 0: all at the same point.", "heterogeneity = 0.5"),
    about("problem (quadratic)", "seed", "", "Seed of the data. Default: the seed of the run.", "seed = 1"),

    about("problem (table)", "l1", "", "Weight of the penalty l1 |x|_1 (lasso; with l2 the elastic net), which makes coefficients exactly zero. The network minimises f + l1 |x|_1, without the intercept's coefficients. Taken by extra, ed, nids, dsgd and local-dsgd, by a proximal step; of these extra, ed and nids are exact, and ed gives all agents the same zeros. Losses in records include it, grad_norm_sq is that of x - prox(x - grad f(x)), and step_size = \"auto\" and mile theory are about f. Default: 0.", "l1 = 0.01"),
];
