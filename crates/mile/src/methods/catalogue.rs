//! The built-in methods by name: their parameters, their references, and how to build one.

use std::sync::{PoisonError, RwLock};

use super::{
    D2, DecFedTrack, DecentLaM, Diging, Dsgd, Ed, Edm, Extra, GradientTracking, Gta, KGt, Led, LocalDsgd,
    MgSkip, Mile, MomentumTracking, Nids, PeriodicalGt, ProxNids, ProxSkip, PushPull, QgDsgdm, Scaffold,
    public_copy,
};
use crate::method::{Checker, InvalidParameter, Method};
use crate::network::Network;
use crate::schedule::Weight;

pub use super::parameters::{DEFAULT_LOCAL_STEPS, Parameters};

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

/// Makes a method from its parameters, the network and the seed of the run.
pub type Build =
    dyn Fn(&Parameters, &Network, u64) -> Result<Box<dyn Method>, InvalidParameter> + Send + Sync;

/// A method with a name: a built-in one, or one that was [added](add).
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
    build: &'static Build,
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
            "d2" | "gradient-tracking" | "mg-skip" | "momentum-tracking" | "edm" => {
                "no proximal form of it is built in"
            }
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
            if let Some(mu) = parameters.momentum.filter(|mu| *mu != 0.0 && self.takes("momentum")) {
                let takes = "0 with a penalty: a proximal step has no momentum";
                return Err(Checker(self.name).refuse("momentum", mu, takes));
            }
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

/// Methods that were added in this process.
static ADDED: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

/// Adds a method of one's own under a name, for experiment files and sweeps that are run in this process; a later one of the
/// same name replaces it. What is added stays in memory until the process ends.
///
/// # Errors
/// If a built-in method has this name.
pub fn add(name: &str, title: &str, build: Box<Build>) -> Result<&'static Entry, InvalidParameter> {
    if let Some(taken) = ALL.iter().find(|entry| entry.name == name) {
        let takes = "a name that no built-in method has";
        return Err(Checker(taken.name).refuse("name", name, takes));
    }
    let entry: &'static Entry = Box::leak(Box::new(Entry {
        name: String::from(name).leak(),
        title: String::from(title).leak(),
        reference: "a method of one's own",
        exact: false,
        parameters: &[],
        note: "",
        build: Box::leak(build),
    }));
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    added.retain(|other| other.name != name);
    added.push(entry);
    Ok(entry)
}

/// The entry of the method called `name`: a built-in one, or one that was [added](add).
pub fn find(name: &str) -> Option<&'static Entry> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    ALL.iter()
        .find(|entry| entry.name == name)
        .or_else(|| added.iter().find(|entry| entry.name == name).copied())
}

const fn parameter(name: &'static str, takes: &'static str, default: &'static str) -> Parameter {
    Parameter { name, takes, default }
}

const LOCAL_STEPS: Parameter = parameter("local_steps", "a whole number from 1", "10");
const ETA_S: Parameter = parameter("eta_s", "a positive number", "1");
const COMMUNICATIONS: Parameter = parameter("communications", "a whole number from 1", "1");
const MOMENTUM: Parameter = parameter("momentum", "a number in [0, 1)", "0");
const USUAL_MOMENTUM: Parameter = parameter("momentum", "a number in [0, 1)", "0.9");
const NESTEROV: Parameter = parameter("nesterov", "true or false", "false");
const COMPRESSION: Parameter =
    parameter("compression", "\"none\", \"8-bit\" or { top_k = a share in (0, 1) }", "\"none\"");
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
                "a number in (0, 1], \"paper\", \"auto\", \"adaptive\", { adaptive } or { from, to, rounds }",
                "\"paper\": 0.9 * 2/(local_steps + 3); with top_k gamma/(10 local_steps)",
            ),
            parameter(
                "gamma",
                "a number in (0, 1], or \"auto\"",
                "xi, the paper's method; with an adaptive xi 1, or 1.5/(1 - l) if that is less; with top_k that share",
            ),
            MOMENTUM,
            NESTEROV,
            COMPRESSION,
        ],
        note: "a gamma different from xi decouples mixing from correction, and momentum needs it: our extensions of the paper, as are an adaptive xi and compression",
        build: &|p, network, _| {
            public_copy::check("mile", p.compression, network)?;
            let mut p = p.clone();
            p.weights_of_compression(true);
            let (xi, gamma) = (p.xi.unwrap_or(Mile::paper_xi(p.tau()).into()), p.gamma);
            let found = matches!(xi, Weight::Adaptive(_)) && gamma.is_none();
            let gamma = if found { Some(Mile::adaptive_gamma(network.extremes().lambda_n)) } else { gamma };
            let method = Mile::with_weights(p.tau(), xi, gamma)?.with_compression(p.compression)?;
            Ok(Box::new(method.with_momentum(p.checked_momentum("mile")?)))
        },
    },
    Entry {
        name: "led",
        title: "LED",
        reference: "Alghunaim 2024",
        exact: true,
        parameters: &[
            LOCAL_STEPS,
            parameter("beta", "a number in (0, 1]", "1/local_steps, less with momentum"),
            MOMENTUM,
            NESTEROV,
        ],
        note: "needs a smallest eigenvalue of W above -1/3: use mixing = \"lazy-metropolis\"; its momentum is our extension",
        build: &|p, _, _| Ok(Box::new(Led::with_momentum(p.tau(), p.beta, p.checked_momentum("led")?)?)),
    },
    Entry {
        name: "k-gt",
        title: "K-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S, MOMENTUM, NESTEROV],
        note: "its momentum is our extension",
        build: &|p, _, _| {
            let method = KGt::new(p.tau(), p.eta_s.unwrap_or(1.0))?;
            Ok(Box::new(method.with_momentum(p.checked_momentum("k-gt")?)))
        },
    },
    Entry {
        name: "periodical-gt",
        title: "Periodical-GT",
        reference: "Liu, Lin, Koloskova, Stich 2023",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation: no public code",
        build: &|p, _, _| Ok(Box::new(PeriodicalGt::new(p.tau())?)),
    },
    Entry {
        name: "dec-fedtrack",
        title: "Dec-FedTrack",
        reference: "Ghiasvand et al. 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "for minimisation, where it is K-GT",
        build: &|p, _, _| Ok(Box::new(DecFedTrack::new(p.tau(), p.eta_s.unwrap_or(1.0))?)),
    },
    Entry {
        name: "gta-1",
        title: "GTA-1",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: &|p, _, _| Ok(Box::new(Gta::one(p.tau(), p.communications.unwrap_or(1))?)),
    },
    Entry {
        name: "gta-2",
        title: "GTA-2",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "",
        build: &|p, _, _| Ok(Box::new(Gta::two(p.tau(), p.communications.unwrap_or(1))?)),
    },
    Entry {
        name: "gta-3",
        title: "GTA-3",
        reference: "Berahas, Bollapragada, Gupta 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, COMMUNICATIONS],
        note: "two exchanges per communication round, one after the other",
        build: &|p, _, _| Ok(Box::new(Gta::three(p.tau(), p.communications.unwrap_or(1))?)),
    },
    Entry {
        name: "diging",
        title: "DIGing",
        reference: "Nedic, Olshevsky, Shi 2017",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "",
        build: &|p, _, _| Ok(Box::new(Diging::new(p.tau())?)),
    },
    Entry {
        name: "push-pull",
        title: "AB/push-pull",
        reference: "Nedic, Nguyen, Nguyen 2022",
        exact: true,
        parameters: &[LOCAL_STEPS],
        note: "our interpretation of what the paper calls PPADCO; A = B = W",
        build: &|p, _, _| Ok(Box::new(PushPull::new(p.tau())?)),
    },
    Entry {
        name: "extra",
        title: "EXTRA",
        reference: "Shi, Ling, Wu, Yin 2015",
        exact: true,
        parameters: &[],
        note: "with problem.l1: PG-EXTRA (Shi, Ling, Wu, Yin 2015)",
        build: &|_, _, _| Ok(Box::new(Extra)),
    },
    Entry {
        name: "ed",
        title: "ED",
        reference: "Yuan, Ying, Zhao, Sayed 2019",
        exact: true,
        parameters: &[],
        note: "with problem.l1: Prox-ED (Alghunaim, Ryu, Yuan, Sayed 2021)",
        build: &|_, _, _| Ok(Box::new(Ed)),
    },
    Entry {
        name: "nids",
        title: "NIDS",
        reference: "Li, Shi, Yan 2019",
        exact: true,
        parameters: &[],
        note: "with problem.l1: the paper's proximal form, which stores a vector more",
        build: &|p, _, _| Ok(if p.penalty { Box::new(ProxNids) } else { Box::new(Nids) }),
    },
    Entry {
        name: "d2",
        title: "D2",
        reference: "Tang, Lian, Yan, Zhang, Liu 2018",
        exact: true,
        parameters: &[],
        note: "needs a smallest eigenvalue of W above -1/3: use mixing = \"lazy-metropolis\"",
        build: &|_, _, _| Ok(Box::new(D2)),
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
        build: &|p, _, seed| {
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
        build: &|p, network, seed| {
            Checker("mg-skip").at_least_one("local_steps", p.tau())?;
            Ok(Box::new(MgSkip::new(seed, p.probability(), p.gossip, network)?))
        },
    },
    Entry {
        name: "local-dsgd",
        title: "local DSGD",
        reference: "DFedAvg: Sun, Li, Wang 2022",
        exact: false,
        parameters: &[
            LOCAL_STEPS,
            MOMENTUM,
            NESTEROV,
            COMPRESSION,
            parameter("gamma", "a number in (0, 1], with compression", "1; with top_k that share"),
        ],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without; with compression it is CHOCO-SGD with local steps; with momentum it is DFedAvgM, of which each round of the paper starts with no momentum and here it is kept",
        build: &|p, network, _| {
            public_copy::check("local-dsgd", p.compression, network)?;
            let mut p = p.clone();
            p.weights_of_compression(false);
            let method = LocalDsgd::new(p.tau())?.with_momentum(p.checked_momentum("local-dsgd")?);
            Ok(Box::new(match p.compression {
                Some(by) => method.with_compression(by, p.gamma.unwrap_or(1.0))?,
                None => method,
            }))
        },
    },
    Entry {
        name: "dsgd",
        title: "DSGD",
        reference: "Lian et al. 2017",
        exact: false,
        parameters: &[parameter("variant", "\"atc\" or \"cta\"", "\"atc\"")],
        note: "does not reach a stationary point when the f_i differ, with problem.l1 as without",
        build: &|p, _, _| Ok(Box::new(Dsgd { variant: p.variant.unwrap_or_default() })),
    },
    Entry {
        name: "gradient-tracking",
        title: "gradient tracking",
        reference: "Xu, Zhu, Soh, Xie 2015",
        exact: true,
        parameters: &[],
        note: "adapt then combine",
        build: &|_, _, _| Ok(Box::new(GradientTracking)),
    },
    Entry {
        name: "scaffold",
        title: "SCAFFOLD",
        reference: "Karimireddy et al. 2020, option II",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "on the complete graph, where one exchange gives the server's average",
        build: &|p, _, _| Ok(Box::new(Scaffold::new(p.tau(), p.eta_s.unwrap_or(1.0))?)),
    },
    Entry {
        name: "momentum-tracking",
        title: "Momentum Tracking",
        reference: "Takezawa, Bao, Niwa, Sato, Yamada 2022",
        exact: true,
        parameters: &[USUAL_MOMENTUM],
        note: "starts from c = 0, without the average over all agents of the authors' code",
        build: &|p, _, _| Ok(Box::new(MomentumTracking::new(p.usual_momentum("momentum-tracking")?))),
    },
    Entry {
        name: "edm",
        title: "EDM",
        reference: "Hu, Chen, Liu, Mao 2025",
        exact: true,
        parameters: &[USUAL_MOMENTUM],
        note: "our reading of the paper, with the matrix (I + W)/2 of ED",
        build: &|p, _, _| Ok(Box::new(Edm::new(p.usual_momentum("edm")?))),
    },
    Entry {
        name: "qg-dsgdm",
        title: "QG-DSGDm",
        reference: "Lin, Karimireddy, Stich, Jaggi 2021",
        exact: false,
        parameters: &[USUAL_MOMENTUM, NESTEROV],
        note: "does not reach a stationary point when the f_i differ: its fixed points are those of dsgd",
        build: &|p, _, _| Ok(Box::new(QgDsgdm::new(p.usual_momentum("qg-dsgdm")?))),
    },
    Entry {
        name: "decentlam",
        title: "DecentLaM",
        reference: "Yuan et al. 2021",
        exact: false,
        parameters: &[USUAL_MOMENTUM],
        note: "does not reach a stationary point when the f_i differ: its fixed points are those of dsgd",
        build: &|p, _, _| Ok(Box::new(DecentLaM::new(p.usual_momentum("decentlam")?))),
    },
];
