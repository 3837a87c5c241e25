use std::time::Duration;

use crate::election::{INTERVAL_MIN, TimingError, TimingSettings, Timings};

/// Returns `timings` scaled to `lease_duration`, or the rules that the scaled durations break.
/// `operation_timeout` depends on the store, so it is shortened only if the rules require it.
pub fn scaled(timings: &Timings, lease_duration: Duration) -> Result<Timings, Vec<TimingError>> {
    let from = timings.settings();
    let part = |duration| proportion(duration, lease_duration, from.lease_duration);
    let (deadline, grace) = (part(from.renew_deadline), part(from.loss_grace));
    // The timing rule adds a constant half second. If the scaled renew deadline and loss grace are
    // therefore too long, they are shortened.
    let room = lease_duration.saturating_sub(Duration::from_millis(500)) / 11 * 10;
    let both = deadline.saturating_add(grace);
    let shortened = proportion(deadline, room, both);
    let (renew_deadline, loss_grace) = match both > room {
        true => (shortened, room.saturating_sub(shortened)),
        false => (deadline, grace),
    };
    let interval = |duration| {
        let part = proportion(duration, renew_deadline, from.renew_deadline);
        part.max(INTERVAL_MIN)
    };
    let settings = TimingSettings {
        lease_duration,
        renew_deadline,
        renew_interval: interval(from.renew_interval),
        retry_interval: interval(from.retry_interval),
        operation_timeout: from.operation_timeout,
        loss_grace,
    };
    Timings::new(settings).or_else(|_| {
        Timings::new(TimingSettings {
            operation_timeout: interval(from.operation_timeout),
            ..settings
        })
    })
}

fn proportion(duration: Duration, to: Duration, of: Duration) -> Duration {
    if of.is_zero() {
        return duration;
    }
    let nanos = duration.as_nanos().saturating_mul(to.as_nanos()) / of.as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(all(test, not(proof)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::election::{LEASE_DURATION_MAX, LEASE_DURATION_MIN};

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_same_lease_duration_changes_nothing() {
        let timings = Timings::default();
        assert_eq!(scaled(&timings, timings.lease_duration()), Ok(timings));
    }

    #[test]
    fn the_operation_timeout_gives_way_only_where_it_must() {
        let of = |lease_duration| scaled(&Timings::default(), lease_duration).expect("legal");
        // 1.2 × (2.5 s + 0.83 s) + 2 × 3 s fits into 15 s.
        let twenty = of(millis(20_000));
        assert_eq!(twenty.renew_deadline(), millis(15_000));
        assert_eq!(twenty.renew_interval(), millis(2_500));
        assert_eq!(twenty.operation_timeout(), millis(3_000));
        // The rule adds a constant half second, so a lease duration of 10 s permits a
        // renew_deadline of only 7.4 s, but 1.2 × (1.2 s + 0.4 s) + 2 × 3 s is more than 7.4 s.
        let ten = of(millis(10_000));
        assert!(ten.renew_deadline() > millis(7_400));
        assert!(ten.operation_timeout() < millis(1_250));
        assert_eq!(of(millis(60_000)).operation_timeout(), millis(3_000));
    }

    #[test]
    fn absurd_lease_durations_are_refused() {
        for absurd in [
            Duration::ZERO,
            millis(999),
            millis(3_600_001),
            Duration::MAX,
        ] {
            let errors = scaled(&Timings::default(), absurd).expect_err("absurd");
            assert!(
                errors.iter().any(|e| e.key == "lease_duration"),
                "{errors:?}"
            );
        }
    }

    /// Timings that satisfy the rules, with some slack above the minimum.
    fn legal() -> impl Strategy<Value = Timings> {
        let interval = 50_u64..20_000;
        (
            interval.clone(),
            interval.clone(),
            interval,
            0_u64..60_000,
            0_u64..300_000,
            0_u64..300_000,
        )
            .prop_map(|(renew, retry, operation, grace, slack, more)| {
                let deadline = (renew + retry) * 6 / 5 + 1 + 2 * operation + slack;
                let lease = (deadline + grace) * 11 / 10 + 1 + 500 + more;
                Timings::new(TimingSettings {
                    lease_duration: millis(lease.clamp(1_000, 3_600_000)),
                    renew_deadline: millis(deadline),
                    renew_interval: millis(renew),
                    retry_interval: millis(retry),
                    operation_timeout: millis(operation),
                    loss_grace: millis(grace),
                })
                .expect("valid timings")
            })
    }

    proptest! {
        #[test]
        fn the_defaults_scale_to_any_lease_duration(nanos in
            LEASE_DURATION_MIN.as_nanos()..=LEASE_DURATION_MAX.as_nanos())
        {
            let lease_duration = Duration::from_nanos(u64::try_from(nanos).expect("at most an hour"));
            let to = scaled(&Timings::default(), lease_duration);
            prop_assert!(to.is_ok(), "{to:?}");
            prop_assert_eq!(to.map(|t| t.lease_duration()), Ok(lease_duration));
        }

        #[test]
        fn all_legal_timings_scale_up(timings in legal(), longer in 0_u32..=1000) {
            let room = LEASE_DURATION_MAX - timings.lease_duration();
            let wanted = timings.lease_duration() + room * longer / 1000;
            let to = scaled(&timings, wanted).expect("a longer lease duration is valid");
            prop_assert_eq!(to.lease_duration(), wanted);
            prop_assert!(to.operation_timeout() <= timings.operation_timeout());
            // Authority stays a constant share of the lease duration.
            let part = |t: &Timings| t.renew_deadline().as_secs_f64() / t.lease_duration().as_secs_f64();
            prop_assert!((part(&to) - part(&timings)).abs() < 1e-3);
        }

        #[test]
        fn each_refusal_names_the_broken_rules(timings in legal(), nanos in any::<u64>()) {
            if let Err(errors) = scaled(&timings, Duration::from_nanos(nanos)) {
                prop_assert!(!errors.is_empty());
            }
        }
    }
}
