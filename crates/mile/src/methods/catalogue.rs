//! The built-in methods by name: what they take, where they come from, and how to build one.

use super::{
    D2, DecFedTrack, Diging, Dsgd, Ed, Extra, GradientTracking, Gta, KGt, Led, LocalDsgd, MgSkip, Mile, Nids,
    PeriodicalGt, ProxSkip, PushPull, Scaffold, Variant,
};
use crate::method::{Checker, InvalidParameter, Method};
use crate::network::Network;

/// Local steps of methods that take them, when none are given.
pub const DEFAULT_LOCAL_STEPS: u64 = 10;

/// Hyperparameters as a user gives them; each method takes some of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Updates per exchange, tau.
    pub local_steps: Option<u64>,
    /// Weight of the correction (mile).
    pub xi: Option<f64>,
    /// Weight of the mixing (mile).
    pub gamma: Option<f64>,
    /// Weight of the correction (led, proxskip).
    pub beta: Option<f64>,
    /// Step between rounds (k-gt, dec-fedtrack, scaffold).
    pub eta_s: Option<f64>,
    /// Exchanges a round (gta).
    pub communications: Option<u64>,
    /// Probability of an exchange (proxskip, mg-skip).
    pub probability: Option<f64>,
    /// Damping of the mixing (proxskip).
    pub chi: Option<f64>,
    /// Gossip rounds an exchange (mg-skip).
    pub gossip: Option<u64>,
    /// Order of mixing and descent (dsgd).
    pub variant: Option<Variant>,
}

impl Parameters {
    /// Those that are given, by their names in experiment files, as text that tells any two values apart. One that is
    /// added in a later version and not given is not among them: what was made without it stays as it was.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let Self { local_steps, xi, gamma, beta, eta_s, communications, probability, chi, gossip, variant } =
            self;
        let whole = |value: &Option<u64>| value.map(|value| value.to_string());
        let number = |value: &Option<f64>| value.map(|value| value.to_string());
        let all = [
            ("local_steps", whole(local_steps)),
            ("xi", number(xi)),
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

    fn coin(&self) -> f64 {
        self.probability.unwrap_or(1.0 / self.tau().max(1) as f64)
    }
}

/// One parameter of a method, for people.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in experiment files.
    pub name: &'static str,
    /// What it may be.
    pub takes: &'static str,
    /// What it is when not given.
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
    /// Where it comes from.
    pub reference: &'static str,
    /// Whether every agent reaches a stationary point of f with a constant step size.
    pub exact: bool,
    /// What it takes beside the step size.
    pub parameters: &'static [Parameter],
    /// What a reader should know about this implementation.
    pub note: &'static str,
    build: Build,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Entry {
    /// Whether it does several updates per exchange.
    pub fn has_local_steps(&self) -> bool {
        self.takes("local_steps")
    }

    /// Whether it takes a parameter of this name.
    pub fn takes(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|p| p.name == parameter)
    }

    /// The method with these parameters, checked against their ranges and the network.
    ///
    /// `seed` is the run's, for methods that toss a coin.
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
            let takes = "1 only: the method talks after every update";
            return Err(Checker(self.name).refuse("local_steps", steps, takes));
        }
        let method = (self.build)(parameters, network, seed)?;
        method.check(network)?;
        Ok(method)
    }
}

/// A method named in the paper's Table 1 that cannot be built, and why.
#[derive(Clone, Copy, Debug)]
pub struct Unavailable {
    /// Its name.
    pub name: &'static str,
    /// Why it is not here.
    pub reason: &'static str,
}

/// What is named in the paper and not here.
pub const UNAVAILABLE: [Unavailable; 1] = [Unavailable {
    name: "mind",
    reason: "cited as submitted; there is no public text or code of it, so its rule is unknown",
}];

/// The entry of a method.
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

/// Every built-in method, in the order in which they are listed.
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
                "a number in (0, 1], \"paper\" or \"auto\"",
                "\"paper\": 0.9 * 2/(local_steps + 3)",
            ),
            parameter("gamma", "a number in (0, 1], or \"auto\"", "xi, the paper's method"),
        ],
        note: "another gamma than xi decouples mixing from correction: our extension",
        build: |p, _, _| {
            let xi = p.xi.unwrap_or(Mile::paper_xi(p.tau()));
            Ok(Box::new(Mile::decoupled(p.tau(), xi, p.gamma.unwrap_or(xi))?))
        },
    },
    Entry {
        name: "led",
        title: "LED",
        reference: "Alghunaim 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, parameter("beta", "a number in (0, 1]", "1/local_steps")],
        note: "needs smallest eigenvalue above -1/3: use lazy weights",
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
        note: "our reading: no public code",
        build: |p, _, _| Ok(Box::new(PeriodicalGt::new(p.tau())?)),
    },
    Entry {
        name: "dec-fedtrack",
        title: "Dec-FedTrack",
        reference: "Ghiasvand et al. 2024",
        exact: true,
        parameters: &[LOCAL_STEPS, ETA_S],
        note: "its minimisation form, which is K-GT",
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
        note: "two exchanges a round, one after the other",
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
        note: "our reading of what the paper calls PPADCO; A = B = W",
        build: |p, _, _| Ok(Box::new(PushPull::new(p.tau())?)),
    },
    Entry {
        name: "extra",
        title: "EXTRA",
        reference: "Shi, Ling, Wu, Yin 2015",
        exact: true,
        parameters: &[],
        note: "",
        build: |_, _, _| Ok(Box::new(Extra)),
    },
    Entry {
        name: "ed",
        title: "ED",
        reference: "Yuan, Ying, Zhao, Sayed 2019",
        exact: true,
        parameters: &[],
        note: "",
        build: |_, _, _| Ok(Box::new(Ed)),
    },
    Entry {
        name: "nids",
        title: "NIDS",
        reference: "Li, Shi, Yan 2019",
        exact: true,
        parameters: &[],
        note: "",
        build: |_, _, _| Ok(Box::new(Nids)),
    },
    Entry {
        name: "d2",
        title: "D2",
        reference: "Tang, Lian, Yan, Zhang, Liu 2018",
        exact: true,
        parameters: &[],
        note: "needs smallest eigenvalue above -1/3: use lazy weights",
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
        note: "agents share the coin",
        build: |p, _, seed| {
            Checker("proxskip").at_least_one("local_steps", p.tau())?;
            Ok(Box::new(ProxSkip::new(seed, p.coin(), p.beta, p.chi.unwrap_or(1.0))?))
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
        note: "a reconstruction: only the abstract was at hand",
        build: |p, network, seed| {
            Checker("mg-skip").at_least_one("local_steps", p.tau())?;
            Ok(Box::new(MgSkip::new(seed, p.coin(), p.gossip, network)?))
        },
    },
    Entry {
        name: "local-dsgd",
        title: "local DSGD",
        reference: "DFedAvg: Sun, Li, Wang 2022",
        exact: false,
        parameters: &[LOCAL_STEPS],
        note: "biased when the f_i differ",
        build: |p, _, _| Ok(Box::new(LocalDsgd::new(p.tau())?)),
    },
    Entry {
        name: "dsgd",
        title: "DSGD",
        reference: "Lian et al. 2017",
        exact: false,
        parameters: &[parameter("variant", "\"atc\" or \"cta\"", "\"atc\"")],
        note: "biased when the f_i differ",
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
        note: "on the complete graph, where one exchange is the server's average",
        build: |p, _, _| Ok(Box::new(Scaffold::new(p.tau(), p.eta_s.unwrap_or(1.0))?)),
    },
];
