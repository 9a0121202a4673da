//! The built-in methods by name: their parameters, their references, and how to build one.

use super::{
    D2, DecFedTrack, Diging, Dsgd, Ed, Extra, GradientTracking, Gta, KGt, Led, LocalDsgd, MgSkip, Mile, Nids,
    PeriodicalGt, ProxNids, ProxSkip, PushPull, Scaffold, Variant,
};
use crate::method::{Checker, InvalidParameter, Method};
use crate::network::Network;
use crate::schedule::Weight;

/// Default number of local steps.
pub const DEFAULT_LOCAL_STEPS: u64 = 10;

/// Hyperparameters as a user gives them; each method uses some of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Local steps tau: updates per communication round.
    pub local_steps: Option<u64>,
    /// Weight of the correction (mile).
    pub xi: Option<Weight>,
    /// Weight of the mixing (mile).
    pub gamma: Option<f64>,
    /// Weight of the correction (led, proxskip).
    pub beta: Option<f64>,
    /// Global step size, applied between communication rounds (k-gt, dec-fedtrack, scaffold).
    pub eta_s: Option<f64>,
    /// Exchanges per communication round (gta).
    pub communications: Option<u64>,
    /// Probability that a step communicates (proxskip, mg-skip).
    pub probability: Option<f64>,
    /// Damping of the mixing (proxskip).
    pub chi: Option<f64>,
    /// Gossip exchanges per communication round (mg-skip).
    pub gossip: Option<u64>,
    /// Order of mixing and gradient step (dsgd).
    pub variant: Option<Variant>,
    /// Whether the problem has a penalty: the method is then its proximal form, or refused.
    pub penalty: bool,
}

impl Parameters {
    /// The parameters that are given, as (name in experiment files, value); different values have different texts.
    /// Parameters that are not given are left out, so that a parameter added in a later version does not change the
    /// result for older experiments.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let Self {
            local_steps,
            xi,
            gamma,
            beta,
            eta_s,
            communications,
            probability,
            chi,
            gossip,
            variant,
            penalty: _,
        } = self;
        let whole = |value: &Option<u64>| value.map(|value| value.to_string());
        let number = |value: &Option<f64>| value.map(|value| value.to_string());
        let all = [
            ("local_steps", whole(local_steps)),
            ("xi", xi.map(|xi| xi.to_string())),
            ("gamma", number(gamma)),
            ("beta", number(beta)),
            ("eta_s", number(eta_s)),
            ("communications", whole(communications)),
            ("probability", number(probability)),
            ("chi", number(chi)),
            ("gossip", whole(gossip)),
            ("variant", variant.map(|variant| variant.name().to_owned())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    fn tau(&self) -> u64 {
        self.local_steps.unwrap_or(DEFAULT_LOCAL_STEPS)
    }

    fn probability(&self) -> f64 {
        self.probability.unwrap_or(1.0 / self.tau().max(1) as f64)
    }
}

/// The documentation of one parameter of a method.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in experiment files.
    pub name: &'static str,
    /// The values allowed.
    pub takes: &'static str,
    /// The default value.
    pub default: &'static str,
}

type Build = fn(&Parameters, &Network, u64) -> Result<Box<dyn Method>, InvalidParameter>;

/// A built-in method.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in experiment files.
    pub name: &'static str,
    /// Its name in tables and figures.
    pub title: &'static str,
    /// The paper it comes from.
    pub reference: &'static str,
    /// Whether every agent reaches a stationary point of f with a constant step size.
    pub exact: bool,
    /// Its parameters besides the step size.
    pub parameters: &'static [Parameter],
    /// A remark on this implementation; empty if there is none.
    pub note: &'static str,
    build: Build,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Entry {
    /// Whether it has local steps: several updates per communication round.
    pub fn has_local_steps(&self) -> bool {
        self.takes("local_steps")
    }

    /// Whether it takes a parameter of this name.
    pub fn takes(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|p| p.name == parameter)
    }

    /// An error if it has no proximal form for problems with a penalty: why, and which methods have.
    pub fn check_penalty(&self) -> Result<(), InvalidParameter> {
        let why = match self.name {
            name if WITH_PENALTY.contains(&name) => return Ok(()),
            "d2" | "gradient-tracking" | "mg-skip" => "no proximal form of it is built in",
            _ => {
                "its agents would threshold their own models between exchanges, and nothing guarantees that they agree on a minimiser"
            }
        };
        let takes = format!("problems without a penalty: {why}; use one of {}", WITH_PENALTY.join(", "));
        Err(Checker(self.name).refuse("penalty", "a problem with one", takes))
    }

    /// The method with these parameters, checked against their ranges and the network.
    ///
    /// `seed` is that of the run, for methods that communicate at random steps.
    pub fn build(
        &self,
        parameters: &Parameters,
        network: &Network,
        seed: u64,
    ) -> Result<Box<dyn Method>, InvalidParameter> {
        if let Some(steps) = parameters.local_steps
            && steps != 1
            && !self.has_local_steps()
        {
            let takes = "1 only: the method communicates after every update";
            return Err(Checker(self.name).refuse("local_steps", steps, takes));
        }
        if parameters.penalty {
            self.check_penalty()?;
        }
        let method = (self.build)(parameters, network, seed)?;
        method.check(network)?;
        Ok(method)
    }
}

/// The methods that minimise objectives with a penalty.
pub const WITH_PENALTY: [&str; 5] = ["extra", "ed", "nids", "dsgd", "local-dsgd"];

/// A method of the paper's Table 1 that is not implemented, and why.
#[derive(Clone, Copy, Debug)]
pub struct Unavailable {
    /// Its name.
    pub name: &'static str,
    /// Why it is not implemented.
    pub reason: &'static str,
}

/// The methods of the paper's Table 1 that are not implemented.
pub const UNAVAILABLE: [Unavailable; 1] = [Unavailable {
    name: "mind",
    reason: "cited as submitted; there is no public text or code of it, so its recursion is unknown",
}];

/// The entry of the method called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

const fn parameter(name: &'static str, takes: &'static str, default: &'static str) -> Parameter {
    Parameter { name, takes, default }
}

const LOCAL_STEPS: Parameter = parameter("local_steps", "a whole number from 1", "10");
const ETA_S: Parameter = parameter("eta_s", "a positive number", "1");
const COMMUNICATIONS: Parameter = parameter("communications", "a whole number from 1", "1");
const PROBABILITY: Parameter = parameter("probability", "a number in (0, 1]", "1/local_steps");

/// Every built-in method.
pub const ALL: &[Entry] = &[
    Entry {
        name: "mile",
        title: "MILE",
        reference: "Liu, Wang, Wang 2025, Algorithm 1",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            parameter(
                "xi",
                "a number in (0, 1], \"paper\", \"auto\" or { from, to, rounds }",
                "\"paper\": 0.9 * 2/(local_steps + 3)",
            ),
            parameter("gamma", "a number in (0, 1], or \"auto\"", "xi, the paper's method"),
        ],
        note: "a gamma different from xi decouples mixing from correction: our extension of the paper",
        build: |p, _, _| {
            let xi = p.xi.unwrap_or(Mile::paper_xi(p.tau()).into());
            Ok(Box::new(Mile::with_weights(p.tau(), xi, p.gamma)?))
        },
    },
    Entry {
        name: "led",
        title: "LED",
        reference: "Alghunaim 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, parameter("beta", "a number in (0, 1]", "1/local_steps")],
        note: "needs a smallest eigenvalue of W above -1/3: use mixing = \"lazy-metropolis\"",
        build: |p, _, _| Ok(Box::new(Led::new(p.tau(), p.beta)?)),
    },
    Entry {
        name: "k-gt",
        title: "K-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "",
        build: |p, _, _| Ok(Box::new(KGt::new(p.tau(), p.eta_s.unwrap_or(1.0))?)),
    },
    Entry {
        name: "periodical-gt",
        title: "Periodical-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation: no public code",
        build: |p, _, _| Ok(Box::new(PeriodicalGt::new(p.tau())?)),
    },
    Entry {
        name: "dec-fedtrack",
        title: "Dec-FedTrack",
        reference: "Ghiasvand et al. 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "for minimisation, where it is K-GT",
        build: |p, _, _| Ok(Box::new(DecFedTrack::new(p.tau(), p.eta_s.unwrap_or(1.0))?)),
    },
    Entry {
        name: "gta-1",
        title: "GTA-1",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: |p, _, _| Ok(Box::new(Gta::one(p.tau(), p.communications.unwrap_or(1))?)),
    },
    Entry {
        name: "gta-2",
        title: "GTA-2",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: |p, _, _| Ok(Box::new(Gta::two(p.tau(), p.communications.unwrap_or(1))?)),
    },
    Entry {
        name: "gta-3",
        title: "GTA-3",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "two exchanges per communication round, one after the other",
        build: |p, _, _| Ok(Box::new(Gta::three(p.tau(), p.communications.unwrap_or(1))?)),
    },
    Entry {
        name: "diging",
        title: "DIGing",
        reference: "Nedic, Olshevsky, Shi 2017",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "",
        build: |p, _, _| Ok(Box::new(Diging::new(p.tau())?)),
    },
    Entry {
        name: "push-pull",
        title: "AB/push-pull",
        reference: "Nedic, Nguyen, Nguyen 2022",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation of what the paper calls PPADCO; A = B = W",
        build: |p, _, _| Ok(Box::new(PushPull::new(p.tau())?)),
    },
    Entry {
        name: "extra",
        title: "EXTRA",
        reference: "Shi, Ling, Wu, Yin 2015",
        exact: true,
        parameters: &[],
        note: "with problem.l1: PG-EXTRA (Shi, Ling, Wu, Yin 2015)",
        build: |_, _, _| Ok(Box::new(Extra)),
    },
    Entry {
        name: "ed",
        title: "ED",
        reference: "Yuan, Ying, Zhao, Sayed 2019",
        exact: true,
        parameters: &[],
        note: "with problem.l1: Prox-ED (Alghunaim, Ryu, Yuan, Sayed 2021)",
        build: |_, _, _| Ok(Box::new(Ed)),
    },
    Entry {
        name: "nids",
        title: "NIDS",
        reference: "Li, Shi, Yan 2019",
        exact: true,
        parameters: &[],
        note: "with problem.l1: the paper's proximal form, which stores a vector more",
        build: |p, _, _| Ok(if p.penalty { Box::new(ProxNids) } else { Box::new(Nids) }),
    },
    Entry {
        name: "d2",
        title: "D2",
        reference: "Tang, Lian, Yan, Zhang, Liu 2018",
        exact: true,
        parameters: &[],
        note: "needs a smallest eigenvalue of W above -1/3: use mixing = \"lazy-metropolis\"",
        build: |_, _, _| Ok(Box::new(D2)),
    },
    Entry {
        name: "proxskip",
        title: "ProxSkip",
        reference: "Mishchenko et al. 2022; Guo et al. 2023",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            PROBABILITY,
            parameter("beta", "a number in (0, 1]", "probability"),
            parameter("chi", "a number from 1", "1"),
        ],
        note: "communicates at random steps, the same for all agents",
        build: |p, _, seed| {
            Checker("proxskip").at_least_one("local_steps", p.tau())?;
            Ok(Box::new(ProxSkip::new(seed, p.probability(), p.beta, p.chi.unwrap_or(1.0))?))
        },
    },
    Entry {
        name: "mg-skip",
        title: "MG-Skip",
        reference: "Guo, Wang, Shi, Cao 2023",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            PROBABILITY,
            parameter("gossip", "a whole number from 1", "1/sqrt(1 - l), rounded up"),
        ],
        note: "a reconstruction: only the abstract was available",
        build: |p, network, seed| {
            Checker("mg-skip").at_least_one("local_steps", p.tau())?;
            Ok(Box::new(MgSkip::new(seed, p.probability(), p.gossip, network)?))
        },
    },
    Entry {
        name: "local-dsgd",
        title: "local DSGD",
        reference: "DFedAvg: Sun, Li, Wang 2022",
        exact: false,
        parameters: &[LOCAL_STEPS],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without",
        build: |p, _, _| Ok(Box::new(LocalDsgd::new(p.tau())?)),
    },
    Entry {
        name: "dsgd",
        title: "DSGD",
        reference: "Lian et al. 2017",
        exact: false,
        parameters: &[parameter("variant", "\"atc\" or \"cta\"", "\"atc\"")],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without",
        build: |p, _, _| Ok(Box::new(Dsgd { variant: p.variant.unwrap_or_default() })),
    },
    Entry {
        name: "gradient-tracking",
        title: "gradient tracking",
        reference: "Xu, Zhu, Soh, Xie 2015",
        exact: true,
        parameters: &[],
        note: "adapt then combine",
        build: |_, _, _| Ok(Box::new(GradientTracking)),
    },
    Entry {
        name: "scaffold",
        title: "SCAFFOLD",
        reference: "Karimireddy et al. 2020, option II",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "on the complete graph, where one exchange gives the server's average",
        build: |p, _, _| Ok(Box::new(Scaffold::new(p.tau(), p.eta_s.unwrap_or(1.0))?)),
    },
];
