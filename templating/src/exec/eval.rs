//! Evaluating expressions: pipelines, commands, fields. Mirrors the `eval` functions of Go's `text/template/exec.go`.

use super::MissingKey;
use super::machine::Machine;
use crate::error::Error;
use crate::funcs::{DURATION, duration};
use crate::parse::{Command, Expr, ExprKind, Fields, NodeRef, Number, Pipe};
use crate::value::{Kind, Operand, Type, Value};

impl<'t> Machine<'t, '_, '_> {
    /// The value of a pipeline; its variables are declared or assigned.
    pub(super) fn pipeline(&mut self, dot: &Operand, pipe: &'t Pipe) -> Result<Operand, Error> {
        self.at(NodeRef::Pipe(pipe));
        let mut value = None;
        for command in &*pipe.cmds {
            // The previous value is this command's last argument.
            value = Some(self.command(dot, command, value)?.stripped());
        }
        let value = value.unwrap_or_default();
        if let Some(decl) = &pipe.decl {
            for name in &decl.names {
                if decl.is_assign {
                    self.set_var(name, value.clone())?;
                } else {
                    self.push_var(name, value.clone());
                }
            }
        }
        Ok(value)
    }

    fn command(
        &mut self,
        dot: &Operand,
        command: &'t Command,
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        let Some((first, args)) = command.args.split_first() else {
            return self.fail("empty command");
        };
        match &first.kind {
            ExprKind::Field(fields) => {
                self.at(NodeRef::Expr(first));
                return self.fields(dot, dot.clone(), first, *fields, args, last);
            }
            ExprKind::Chain { base, fields } => {
                return self.chain(dot, first, base, *fields, args, last);
            }
            ExprKind::Identifier(function) => {
                let call = NodeRef::Command(command);
                return self.function(dot, first, call, function, args, last);
            }
            ExprKind::Pipe(pipe) => {
                self.not_a_function(first, args, last.is_some())?;
                return self.nested(dot, pipe);
            }
            ExprKind::Variable { name, end } => {
                return self.variable(dot, first, name, first.fields_to(*end), args, last);
            }
            _ => {}
        }
        self.at(NodeRef::Expr(first));
        self.not_a_function(first, args, last.is_some())?;
        match &first.kind {
            ExprKind::Dot => Ok(dot.clone()),
            ExprKind::Nil => self.fail("nil is not a command"),
            _ => self.constant(first),
        }
    }

    /// A pipeline in parentheses.
    fn nested(&mut self, dot: &Operand, pipe: &'t Pipe) -> Result<Operand, Error> {
        let checked = self.renderer.state.check_stack();
        self.limited(checked)?;
        self.pipeline(dot, pipe)
    }

    fn not_a_function(&self, first: &Expr, args: &[Expr], piped: bool) -> Result<(), Error> {
        if args.is_empty() && !piped {
            return Ok(());
        }
        let first = self.source_of(first);
        // Go prints a bare pipeline here, without its parentheses.
        self.fail(format!("can't give argument to non-function {first}"))
    }

    /// A literal where its type is left open.
    fn constant(&mut self, expr: &'t Expr) -> Result<Operand, Error> {
        let value = match &expr.kind {
            ExprKind::Bool(value) => Value::Bool(*value),
            ExprKind::String(text) => Value::Str(text.clone()),
            ExprKind::Number(number) => {
                self.at(NodeRef::Expr(expr));
                return self.ideal_number(number).map(Operand::exact);
            }
            _ => {
                let text = self.source_of(expr);
                return self.fail(format!(
                    "can't evaluate command {}",
                    golib::strconv::quote(text)
                ));
            }
        };
        Ok(Operand::exact(value))
    }

    fn ideal_number(&self, number: &Number) -> Result<Value, Error> {
        if let Some((re, im)) = number.complex {
            return Ok(Value::Complex(re, im));
        }
        if let Some(float) = number.float.filter(|_| number.reads_as_float()) {
            return Ok(Value::Float(float));
        }
        match number.int {
            Some(int) => Ok(Value::Int(int)),
            None => self.fail(format!("{} overflows int", number.text)),
        }
    }

    fn chain(
        &mut self,
        dot: &Operand,
        expr: &'t Expr,
        base: &'t Expr,
        fields: Fields,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        self.at(NodeRef::Expr(expr));
        let receiver = self.untyped_argument(dot, base)?;
        self.fields(dot, receiver, expr, fields, args, last)
    }

    fn variable(
        &mut self,
        dot: &Operand,
        expr: &'t Expr,
        name: &str,
        fields: Fields,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        self.at(NodeRef::Expr(expr));
        let value = self.var(name)?.clone();
        if fields.is_empty() {
            self.not_a_function(expr, args, last.is_some())?;
            return Ok(value);
        }
        self.fields(dot, value, expr, fields, args, last)
    }

    /// Field after field; only the last may be a method with arguments.
    fn fields(
        &mut self,
        dot: &Operand,
        mut receiver: Operand,
        expr: &'t Expr,
        fields: Fields,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        let source = self.source();
        let mut names = fields.names(source);
        let Some(final_field) = names.next_back() else {
            return Ok(receiver);
        };
        for field in names {
            receiver = self.field(dot, receiver, expr, field, &[], None)?;
        }
        self.field(dot, receiver, expr, final_field, args, last)
    }

    fn field(
        &mut self,
        dot: &Operand,
        receiver: Operand,
        expr: &'t Expr,
        name: &str,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        let missing_key = self.set.missing_key();
        if receiver.is_invalid() {
            if missing_key == MissingKey::Error {
                let name = golib::strconv::quote(name);
                return self.fail(format!("nil data; no entry for key {name}"));
            }
            return Ok(Operand::default());
        }
        let static_type = receiver.type_name();
        let has_args = !args.is_empty() || last.is_some();
        let methods = match &receiver.value {
            Value::Nil => {
                return self.fail(format!("nil pointer evaluating {static_type}.{name}"));
            }
            Value::Map(map) => map.map_type().methods,
            Value::List(list) => list.list_type().methods,
            Value::Object(object) => object.methods(),
            _ => &[],
        };
        if let Some(method) = methods.iter().find(|method| name == method.name) {
            return self.method(dot, &receiver.value, expr, method, args, last);
        }
        if let Value::Object(object) = &receiver.value
            && let Some(method) = object
                .uncallable()
                .iter()
                .find(|method| name == method.name)
        {
            self.check_count(name, method.params, false, args.len(), last.is_some())?;
            return self.fail(method.complaint);
        }
        match &receiver.value {
            Value::Map(map) => {
                if has_args {
                    return self.fail(format!("{name} is not a method but has arguments"));
                }
                let element = map.map_type().element;
                if let Some(value) = map.get(name) {
                    return Ok(Operand::element(value, element));
                }
                match missing_key {
                    MissingKey::Invalid => Ok(Operand::default()),
                    MissingKey::Zero => Ok(Operand::element(element.zero(), element)),
                    MissingKey::Error => {
                        let name = golib::strconv::quote(name);
                        self.fail(format!("map has no entry for key {name}"))
                    }
                }
            }
            Value::Object(object) if object.unexported().contains(&name) => self.fail(format!(
                "{name} is an unexported field of struct type {static_type}"
            )),
            Value::Object(object) => match object.field(name) {
                Some(_) if has_args => self.fail(format!(
                    "{name} has arguments but cannot be invoked as function"
                )),
                Some(value) => {
                    let is_addressable = object.kind() == Kind::Ptr || receiver.is_addressable;
                    Ok(Operand {
                        is_addressable,
                        ..Operand::exact(value)
                    })
                }
                None => self.fail(format!("can't evaluate field {name} in type {static_type}")),
            },
            _ => self.fail(format!("can't evaluate field {name} in type {static_type}")),
        }
    }

    /// An argument whose parameter type does not matter.
    fn untyped_argument(&mut self, dot: &Operand, expr: &'t Expr) -> Result<Operand, Error> {
        self.at(NodeRef::Expr(expr));
        match &expr.kind {
            ExprKind::Dot => Ok(dot.clone()),
            ExprKind::Field(fields) => self.fields(dot, dot.clone(), expr, *fields, &[], None),
            ExprKind::Variable { name, end } => {
                self.variable(dot, expr, name, expr.fields_to(*end), &[], None)
            }
            ExprKind::Pipe(pipe) => self.nested(dot, pipe),
            ExprKind::Identifier(function) => {
                self.function(dot, expr, NodeRef::Expr(expr), function, &[], None)
            }
            ExprKind::Chain { base, fields } => self.chain(dot, expr, base, *fields, &[], None),
            _ => self.constant(expr),
        }
    }

    /// An argument for a parameter of the given type: a literal is converted, any other value must fit as it is.
    pub(super) fn argument(
        &mut self,
        dot: &Operand,
        param: &Type,
        expr: &'t Expr,
    ) -> Result<Operand, Error> {
        self.at(NodeRef::Expr(expr));
        let (what, number) = match &expr.kind {
            ExprKind::Nil => {
                if !param.can_be_nil() {
                    return self.fail(format!("cannot assign nil to {param}"));
                }
                return Ok(nil_of(param));
            }
            ExprKind::Bool(_) | ExprKind::String(_) => (expr, None),
            ExprKind::Number(number) => (expr, Some(&**number)),
            _ => {
                let value = self.untyped_argument(dot, expr)?;
                return self.validate(value, param);
            }
        };
        let (value, expected) = match param {
            Type::Any | Type::Reflect => return self.constant(what),
            Type::Bool => (literal_bool(what), "bool"),
            Type::String => (literal_string(what), "string"),
            Type::Float64 => (number.and_then(|n| n.float).map(Value::Float), "float"),
            Type::Complex128 => (
                number
                    .and_then(|n| n.complex)
                    .map(|(re, im)| Value::Complex(re, im)),
                "complex",
            ),
            Type::Int => (number.and_then(|n| n.int).map(Value::Int), "integer"),
            Type::Int64 => (number.and_then(|n| n.int).map(Value::Int64), "integer"),
            Type::Int32 => (
                number.and_then(|n| n.int).map(|n| Value::Int32(n as i32)),
                "integer",
            ),
            Type::Uint8 => (
                number.and_then(|n| n.uint).map(|n| Value::Uint8(n as u8)),
                "unsigned integer",
            ),
            Type::Uint32 => (
                number.and_then(|n| n.uint).map(|n| Value::Uint32(n as u32)),
                "unsigned integer",
            ),
            Type::Uint64 => (
                number.and_then(|n| n.uint).map(Value::Uint64),
                "unsigned integer",
            ),
            Type::Object(DURATION) => (number.and_then(|n| n.int).map(duration), "integer"),
            Type::Bytes | Type::List(_) | Type::Map(_) | Type::Object(_) => {
                let text = self.source_of(what);
                return self.fail(format!("can't handle {text} for arg of type {param}"));
            }
        };
        match value {
            Some(value) => Ok(Operand::exact(value)),
            None => {
                let text = self.source_of(what);
                self.fail(format!("expected {expected}; found {text}"))
            }
        }
    }

    /// Checks a value against a parameter type.
    pub(super) fn validate(&self, value: Operand, param: &Type) -> Result<Operand, Error> {
        if matches!(param, Type::Reflect) {
            return Ok(value);
        }
        if value.is_invalid() {
            if param.can_be_nil() {
                return Ok(nil_of(param));
            }
            return self.fail(format!("invalid value; expected {param}"));
        }
        if matches!(param, Type::Any) {
            return Ok(value);
        }
        let is_nil_interface = value.is_interface && value.value.is_untyped_nil();
        if !is_nil_interface && param.accepts(&value.value) {
            return Ok(Operand::exact(value.value));
        }
        let got = if is_nil_interface {
            Type::Any.name()
        } else {
            value.value.type_name()
        };
        self.fail(format!("wrong type for value; expected {param}; got {got}"))
    }

    fn source_of(&self, expr: &Expr) -> String {
        NodeRef::Expr(expr).to_source(self.source())
    }
}

fn nil_of(param: &Type) -> Operand {
    match param {
        Type::Reflect => Operand::default(),
        param => Operand::element(param.zero(), *param),
    }
}

fn literal_bool(expr: &Expr) -> Option<Value> {
    match expr.kind {
        ExprKind::Bool(value) => Some(Value::Bool(value)),
        _ => None,
    }
}

fn literal_string(expr: &Expr) -> Option<Value> {
    match &expr.kind {
        ExprKind::String(text) => Some(Value::Str(text.clone())),
        _ => None,
    }
}
