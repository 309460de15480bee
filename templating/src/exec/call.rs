//! Calling functions and methods: counting, checking and converting arguments. Mirrors `evalCall` of Go's
//! `text/template/exec.go`.

use super::machine::Machine;
use crate::error::{Cause, Error};
use crate::funcs::{Body, Callee, Function};
use crate::parse::{Expr, NodeRef};
use crate::value::{Method, Operand, Type, Value};

impl<'t> Machine<'t, '_, '_> {
    /// Calls a function of the table. `call` is the node that an error of the function is reported at.
    pub(super) fn function(
        &mut self,
        dot: &Operand,
        ident: &'t Expr,
        call: NodeRef<'t>,
        function: &'t Function,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        self.at(NodeRef::Expr(ident));
        let Function {
            name,
            signature,
            body,
        } = function;
        let (params, variadic) = (&signature.params[..], signature.variadic);
        self.check_count(name, params.len(), variadic, args.len(), last.is_some())?;
        let callee = match body {
            Body::And => return self.and_or(dot, args, last, false),
            Body::Or => return self.and_or(dot, args, last, true),
            Body::Call => {
                let callee = match (args.first(), &last) {
                    (Some(first), _) => NodeRef::Expr(first).to_source(self.source()),
                    (None, Some(last)) => describe(last),
                    (None, None) => String::new(),
                };
                let base = self.arguments(dot, params, variadic, args, last)?;
                self.at(call);
                let error = not_callable(&callee, self.args.get(base));
                return Err(self.call_error(name, error));
            }
            Body::Function(callee) => callee,
        };
        let base = self.arguments(dot, params, variadic, args, last)?;
        let effort = self.args[base..].iter().map(effort).sum::<u64>();
        let spent = self.renderer.state.spend_steps(1 + effort);
        self.limited(spent)?;
        let args = &mut self.args[base..];
        let result = match callee {
            Callee::Native(native) => native(&mut self.renderer.state, args),
            Callee::Include => self.renderer.include(args),
            Callee::Tpl => self.renderer.tpl(args),
        };
        let result = result.and_then(|mut result| {
            match &mut result.value {
                Value::Str(text) => {
                    self.renderer.state.spend_bytes(text.len() as u64)?;
                    *text = std::mem::take(text).counted();
                    self.renderer.state.check_memory(0)?;
                }
                Value::List(_) | Value::Map(_) => self.renderer.state.check_memory(0)?,
                _ => {}
            }
            Ok(result)
        });
        self.args.truncate(base);
        result.map_err(|error| {
            self.at(call);
            self.call_error(name, error)
        })
    }

    pub(super) fn method(
        &mut self,
        dot: &Operand,
        receiver: &Value,
        expr: &'t Expr,
        method: &Method,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        let params = method.params;
        self.check_count(method.name, params.len(), false, args.len(), last.is_some())?;
        let base = self.arguments(dot, params, false, args, last)?;
        let result = (method.call)(&mut self.renderer.state, receiver, &mut self.args[base..]);
        self.args.truncate(base);
        result.map_err(|error| {
            self.at(NodeRef::Expr(expr));
            self.call_error(method.name, error)
        })
    }

    fn call_error(&self, name: &str, source: Error) -> Error {
        self.error(Cause::Call {
            function: name.to_owned(),
            source,
        })
    }

    pub(super) fn check_count(
        &self,
        name: &str,
        params: usize,
        variadic: bool,
        args: usize,
        piped: bool,
    ) -> Result<(), Error> {
        let given = args + usize::from(piped);
        if variadic {
            let fixed = params.saturating_sub(1);
            if given < fixed {
                // Go counts without the piped argument here.
                return self.fail(format!(
                    "wrong number of args for {name}: want at least {fixed} got {args}"
                ));
            }
        } else if given != params {
            return self.fail(format!(
                "wrong number of args for {name}: want {params} got {given}"
            ));
        }
        Ok(())
    }

    /// Puts the arguments on the stack of arguments and returns where they begin there.
    fn arguments(
        &mut self,
        dot: &Operand,
        params: &[Type],
        variadic: bool,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Result<usize, Error> {
        let param = |i: usize| -> &Type {
            // Beyond the last parameter of a variadic function its type repeats.
            params
                .get(i)
                .or(params.last().filter(|_| variadic))
                .unwrap_or(&Type::Any)
        };
        let base = self.args.len();
        for (i, arg) in args.iter().enumerate() {
            let value = self.argument(dot, param(i), arg)?;
            self.args.push(value);
        }
        if let Some(last) = last {
            let last = self.validate(last, param(args.len()))?;
            self.args.push(last);
        }
        Ok(base)
    }

    /// `and` and `or` stop at the first argument that decides; the piped one comes last.
    fn and_or(
        &mut self,
        dot: &Operand,
        args: &'t [Expr],
        last: Option<Operand>,
        until: bool,
    ) -> Result<Operand, Error> {
        let mut value = Operand::default();
        for arg in args {
            value = self.argument(dot, &Type::Reflect, arg)?;
            if value.value.is_true() == until {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }
}

/// Steps that looking at an argument is worth: a function may copy it, so a loop over a growing list costs its square.
fn effort(operand: &Operand) -> u64 {
    let effort = match &operand.value {
        Value::Str(text) => text.len() / 64,
        Value::Bytes(Some(bytes)) => bytes.len() / 64,
        Value::List(list) => list.len() / 16,
        Value::Map(map) => map.len() / 16,
        _ => 0,
    };
    effort as u64
}

/// What Go's `reflect.Value.String` says of a value.
fn describe(operand: &Operand) -> String {
    match &operand.value {
        Value::Str(text) => text.to_string(),
        _ if operand.is_invalid() => "<invalid Value>".to_owned(),
        _ => format!("<{} Value>", operand.type_name()),
    }
}

/// `call` needs a function value, and nothing gives a template one.
fn not_callable(callee: &str, value: Option<&Operand>) -> Error {
    match value {
        Some(Operand { value, .. }) if !value.is_untyped_nil() => Error::message(format!(
            "non-function {callee} of type {}",
            value.type_name()
        )),
        _ => Error::message("call of nil"),
    }
}
